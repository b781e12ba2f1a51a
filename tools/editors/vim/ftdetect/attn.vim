autocmd BufRead,BufNewFile *.attn setfiletype attn
