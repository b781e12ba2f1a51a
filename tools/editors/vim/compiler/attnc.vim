scriptencoding utf-8
" :make runs the checks of a file; its messages fill the quickfix list. Where the
" locale is UTF-8, places are drawn.
if exists("current_compiler")
  finish
endif
let current_compiler = "attnc"

CompilerSet makeprg=attnc\ check\ --color=never\ -q\ %:S
CompilerSet errorformat=%Eerror[%n]:\ %m,%Wwarning[%n]:\ %m,
      \%Eerror[A%n]:\ %m,%Wwarning[A%n]:\ %m,
      \%C%*[\ ]-->\ %f:%l:%c,%C%*[\ ]╭─\ %f:%l:%c,%C%.%#,%-G%.%#
