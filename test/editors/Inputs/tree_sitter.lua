-- Colours of the places "LINE COLUMN" by Tree-sitter: its captures there.
require("attn").treesitter(vim.env.PARSER)
vim.bo.filetype = "attn"
local query = vim.treesitter.get_query("attn", "highlights")
local root = vim.treesitter.get_parser(0, "attn"):parse()[1]:root()
for _, at in ipairs({ { 4, 0 }, { 4, 4 }, { 5, 10 }, { 8, 0 }, { 8, 10 } }) do
  local found = {}
  for id, node in query:iter_captures(root, 0, at[1], at[1] + 1) do
    local line, column = node:start()
    if line == at[1] and column == at[2] then found[#found + 1] = query.captures[id] end
  end
  print(at[1] + 1, at[2] + 1, table.concat(found, " "))
end
print(vim.treesitter.highlighter.active[vim.api.nvim_get_current_buf()] and "on" or "off")
vim.cmd("qa!")
