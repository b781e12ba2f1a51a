" Settings of .attn files.
if exists("b:did_ftplugin")
  finish
endif
let b:did_ftplugin = 1

setlocal commentstring=#\ %s comments=:##,:#
setlocal expandtab shiftwidth=2 softtabstop=2 textwidth=100
setlocal formatoptions-=t formatoptions+=croql
setlocal suffixesadd=.attn
setlocal include=^\\s*import\\s\\+
setlocal includeexpr=substitute(v:fname,'\\.','/','g')
setlocal define=^\\s*\\(fn\\\|row\\\|mask\\\|mod\\\|attention\\\|recurrent\\\|let\\)
if executable("attnc")
  setlocal formatprg=attnc\ fmt\ -
endif
compiler attnc

let b:undo_ftplugin = "setlocal commentstring< comments< expandtab< "
      \ . "shiftwidth< softtabstop< textwidth< formatoptions< suffixesadd< "
      \ . "include< includeexpr< define< formatprg< makeprg< errorformat<"
