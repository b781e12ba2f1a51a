" Syntax of .attn files. The language server's semantic tokens know more.
if exists("b:current_syntax")
  finish
endif

syntax keyword attnDecl attention recurrent fn row mask mod let import check schedule
syntax keyword attnStmt index state step repeat return assume where in as for
syntax keyword attnStmt layout ragged paged const dyn nograd inout reverse dtype
syntax keyword attnStmt dims input expect tol
syntax keyword attnCond if then else
syntax keyword attnConst true false inf
syntax keyword attnType f64 f32 tf32 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 u32 u16 u8 bool int
syntax keyword attnBuiltin exp exp2 log log2 sqrt rsqrt tanh sigmoid softplus relu silu erf sin cos
syntax keyword attnBuiltin cosh sinh atan log1p expm1 gelu
syntax keyword attnBuiltin floor abs clamp select stop_grad random dot outer vec concat sum prod max min
syntax keyword attnBuiltin mean any all count cumsum suffix_sum topk from_bits
syntax match attnNumber "\<\d\+\>"
syntax match attnNumber "\<0[xX]\x\+\>"
syntax match attnNumber "\<\d\+\(\.\d\+\)\?[eE][-+]\?\d\+\>"
syntax match attnNumber "\<\d\+\.\d\+\>"
syntax match attnOperator "|>\|@@\|\*\*\|//\|->\|\~="
syntax match attnAttr "@\h\w*"
syntax region attnString start=+"+ end=+"+ oneline
syntax match attnComment "#.*$" contains=attnTodo,@Spell
syntax match attnDoc "##.*$" contains=@Spell
syntax keyword attnTodo TODO FIXME XXX contained

highlight default link attnDecl Keyword
highlight default link attnStmt Statement
highlight default link attnCond Conditional
highlight default link attnConst Constant
highlight default link attnType Type
highlight default link attnBuiltin Function
highlight default link attnNumber Number
highlight default link attnOperator Operator
highlight default link attnAttr PreProc
highlight default link attnString String
highlight default link attnComment Comment
highlight default link attnDoc SpecialComment
highlight default link attnTodo Todo

let b:current_syntax = "attn"
