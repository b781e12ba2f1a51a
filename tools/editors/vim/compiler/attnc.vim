" :make runs the checks of a file; its messages fill the quickfix list.
if exists("current_compiler")
  finish
endif
let current_compiler = "attnc"

CompilerSet makeprg=attnc\ check\ --color=never\ -q\ %:S
CompilerSet errorformat=%Eerror[%n]:\ %m,%Wwarning[%n]:\ %m,
      \%Eerror[A%n]:\ %m,%Wwarning[A%n]:\ %m,
      \%C%*[\ ]-->\ %f:%l:%c,%C%.%#,%-G%.%#
