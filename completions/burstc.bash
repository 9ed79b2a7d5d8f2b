# burstc's command line in bash: installed for bash-completion, or read by `source burstc.bash`.
_burstc()
{
    local line cur=${COMP_WORDS[COMP_CWORD]}
    [ "$cur" = = ] && cur=
    COMPREPLY=()
    compopt -o filenames 2>/dev/null
    while IFS= read -r line; do
        case $line in
        :/) COMPREPLY+=($(compgen -d -- "$cur")) ;;
        :*) COMPREPLY+=($(compgen -d -- "$cur") $(compgen -f -X "!${line#:}" -- "$cur")) ;;
        "$cur"*) COMPREPLY+=("$line") ;;
        esac
    done < <(burstc --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _burstc burstc
