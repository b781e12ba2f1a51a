-- Starts attn-ls for .attn files in Neovim: require("attn").setup()
--   cmd   the server and its arguments, default {"attn-ls"}
local M = {}

local function root_of(path)
  local marks = vim.fs and vim.fs.find(".git", { upward = true, path = path })
  return marks and marks[1] and vim.fn.fnamemodify(marks[1], ":h")
    or vim.fn.fnamemodify(path, ":p:h")
end

function M.config(opts)
  opts = opts or {}
  local path = vim.api.nvim_buf_get_name(0)
  return {
    name = "attn-ls",
    cmd = opts.cmd or { "attn-ls" },
    root_dir = root_of(path),
    capabilities = opts.capabilities,
    on_attach = opts.on_attach,
    handlers = opts.handlers,
  }
end

-- Attaches the current buffer; one server for each root.
local clients = {}
function M.attach(opts)
  local config = M.config(opts)
  if vim.lsp.start then
    return vim.lsp.start(config)
  end
  local id = clients[config.root_dir]
  if not id or not vim.lsp.get_client_by_id(id) then
    id = vim.lsp.start_client(config)
    clients[config.root_dir] = id
  end
  vim.lsp.buf_attach_client(0, id)
  return id
end

-- Colours by Tree-sitter; PARSER is the library of tools/editors/tree-sitter.
function M.treesitter(parser)
  local language = vim.treesitter.language or {}
  if language.add then
    language.add("attn", { path = parser })
  else
    vim.treesitter.require_language("attn", parser)
  end
  _G.attn_colour = function()
    if vim.treesitter.start then
      return vim.treesitter.start(0, "attn")
    end
    vim.treesitter.highlighter.new(vim.treesitter.get_parser(0, "attn"))
  end
  vim.cmd([[
    augroup attn_treesitter
      autocmd!
      autocmd FileType attn lua attn_colour()
    augroup END
  ]])
end

function M.setup(opts)
  _G.attn_attach = function() M.attach(opts) end
  vim.cmd([[
    augroup attn
      autocmd!
      autocmd FileType attn lua attn_attach()
    augroup END
  ]])
end

return M
