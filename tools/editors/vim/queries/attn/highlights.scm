; Captures that Neovim, Helix, Emacs and Zed know.
(comment) @comment
(string) @string
(number) @number
[(boolean) (infinity)] @constant.builtin
(type_name) @type.builtin

["import" "as" "for"] @include
["let" "fn" "mask" "mod" "row" "attention" "recurrent" "schedule" "check"
 "index" "state" "assume" "input" "expect" "dims" "tol" "where" "in" "layout"
 "const" "dyn" "ragged" "paged" "dtype" "nograd" "inout"] @keyword
["if" "then" "else"] @conditional
["step" "repeat" "reverse"] @repeat
"return" @keyword.return

["->" "|>" "<=" ">=" "==" "!=" "//" ".." "~=" "**" "@@" "-" "+" "*" "/" "%" "<"
 ">" "=" "!" "&" "|"] @operator
["." "," ":" ";"] @punctuation.delimiter
["(" ")" "[" "]" "{" "}"] @punctuation.bracket

(attribute "@" @attribute name: (name) @attribute)
(import module: (path (name) @namespace))
(function name: (name) @function)
(mask name: (name) @function)
(mod name: (name) @function)
(row name: (name) @function)
(program name: (name) @function)
(constant name: (name) @constant)
(dim name: (name) @type)
(parameter name: (name) @parameter)
(index name: (name) @variable)
(setting key: (name) @property)
(named_argument name: (name) @parameter)
(member name: (name) @property)
(call function: (name) @function.call)
(call function: (member name: (name) @function.call))
(pipe function: (path (name) @function.call))
