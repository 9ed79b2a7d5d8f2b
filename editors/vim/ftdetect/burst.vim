autocmd BufNewFile,BufRead *.burst,*.topo,*.sched setfiletype burst
