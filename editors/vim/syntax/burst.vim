" Syntax of burstc's languages: models (.burst), clusters (.topo), schedules (.sched).
if exists("b:current_syntax")
  finish
endif
syntax match burstStatement "\%(^\|[;{}]\)\s*\zs\%(\%(and\|or\|not\)\>\)\@!\h\w*"
syntax keyword burstOperator and or not mod per of over to from with at by in top where always
syntax keyword burstFunction min max abs hash bitand bitor bitxor
syntax keyword burstConstant auto yes no none true false learned
syntax match burstNumber "\<\d\+\%(\.\d\+\)\=\%([eE][-+]\=\d\+\)\=\s\=\%([KMGT]i\=B\=\%(/s\)\=\|[KMGT]b/s\|[GT]FLOP/s\|[munp]\=s\)\=\>"
syntax match burstComment "#.*$"
syntax region burstString start=+"+ end=+"+ oneline
highlight default link burstStatement Statement
highlight default link burstOperator Operator
highlight default link burstFunction Function
highlight default link burstConstant Constant
highlight default link burstNumber Number
highlight default link burstComment Comment
highlight default link burstString String
let b:current_syntax = "burst"
