for _, q in ipairs(vim.fn.getqflist()) do
  print(vim.fn.bufname(q.bufnr), q.lnum, q.col, q.type, q.nr, q.text)
end
