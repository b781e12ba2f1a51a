-- Neovim, headless, as a client: prints what it gets. Environment: SERVER,
-- EDITOR_FILES (tools/editors/vim).
vim.opt.runtimepath:prepend(os.getenv("EDITOR_FILES"))
vim.cmd("filetype plugin on | syntax on")
local attn = require("attn")
attn.setup({ cmd = { os.getenv("SERVER") } })

local function out(...)
  io.stdout:write(table.concat(vim.tbl_map(tostring, { ... }), " ") .. "\n")
end

local function wait(what, test)
  if not vim.wait(10000, test, 10) then
    out("TIMEOUT", what)
    vim.cmd("cquit 1")
  end
end

vim.cmd("edit " .. vim.fn.fnameescape(vim.fn.argv(0)))
vim.cmd("setfiletype attn")
out("filetype", vim.bo.filetype, "syntax", vim.bo.syntax)
local function group(line, col)
  local id = vim.fn.synIDtrans(vim.fn.synID(line, col, 1))
  return vim.fn.synIDattr(id, "name")
end
out("colours", group(1, 1), group(4, 4), group(5, 14), group(7, 1))
local buf = vim.api.nvim_get_current_buf()
wait("attach", function() return next(vim.lsp.buf_get_clients(buf)) ~= nil end)
wait("initialize", function()
  for _, c in pairs(vim.lsp.buf_get_clients(buf)) do return c.initialized end
end)

-- The line and column (from 0) of the n-th place of a text.
local function find(text)
  for i, line in ipairs(vim.api.nvim_buf_get_lines(buf, 0, -1, false)) do
    local at = line:find(text, 1, true)
    if at then return i - 1, at - 1 end
  end
end

local function ask(method, text, more)
  local line, col = find(text)
  local params = vim.tbl_extend("force", {
    textDocument = vim.lsp.util.make_text_document_params(buf),
    position = { line = line, character = col },
  }, more or {})
  for _, r in pairs(vim.lsp.buf_request_sync(buf, method, params, 5000)) do
    return r.result, r.error
  end
end

wait("diagnostics", function() return #vim.diagnostic.get(buf) > 0 end)
for _, d in ipairs(vim.diagnostic.get(buf)) do
  out("diagnostic", d.lnum + 1, d.col + 1, d.code, vim.split(d.message, "\n")[1])
end

out("hover", (ask("textDocument/hover", "softmax(dot").contents.value
  :gsub("\n", " ")))

local items = ask("textDocument/completion", "sum(k: p").items
local names = {}
for _, i in ipairs(items) do names[i.label] = true end
out("complete softmax", names.softmax, "q", names.q, "rsqrt", names.rsqrt)

local l = ask("textDocument/definition", "softmax(dot")
out("definition", l.uri:match("std/rows.attn$"), l.range.start.line + 1)
vim.lsp.util.jump_to_location(l, "utf-16")
out("jumped to", vim.api.nvim_buf_get_name(0):match("std/rows.attn$"),
  vim.api.nvim_get_current_line())
vim.cmd("buffer " .. buf)

local line, col = find("twice(s")
vim.api.nvim_win_set_cursor(0, { line + 1, col })
vim.lsp.buf.rename("doubled")
wait("rename", function() return find("doubled(s") ~= nil end)
out("renamed", vim.api.nvim_buf_get_lines(buf, 4, 5, false)[1])
out("renamed", vim.trim(vim.api.nvim_buf_get_lines(buf, 11, 12, false)[1]))

vim.lsp.buf.formatting_sync(nil, 5000)
out("formatted", vim.api.nvim_buf_get_lines(buf, 4, 5, false)[1])

local lnum, c = find("misspeled")
vim.api.nvim_buf_set_text(buf, lnum, c - 3, lnum, c + 9, { "" })
wait("no diagnostics", function() return #vim.diagnostic.get(buf) == 0 end)
out("clean after the edit")

for _, c2 in pairs(vim.lsp.buf_get_clients(buf)) do c2.stop() end
wait("stop", function() return next(vim.lsp.buf_get_clients(buf)) == nil end)
out("stopped")
vim.cmd("qall!")
