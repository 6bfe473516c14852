# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# bash completion for hvdrun. Options and commands come from the program itself, jobs from hvdrun list.

_hvdrun_options() {
    "$@" --help 2>/dev/null | grep -oE -- '(^|[ ,[])--?[a-z][a-z-]*' | tr -d ' ,[' | sort -u
}

_hvdrun() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]} words=''
    local commands='list status scale drain attach'
    local gone=''
    [ "${COMP_WORDS[1]}" != attach ] || gone=-v # for attach: list names jobs of killed hvdruns, too
    COMPREPLY=()
    [[ " $commands " == *" ${COMP_WORDS[1]} "* ]] || commands=''
    if [ -n "$commands" ] && [ "$COMP_CWORD" -ge 2 ]; then
        case $cur in
        -*) words=$(_hvdrun_options "$program" "${COMP_WORDS[1]}") ;;
        *)
            [ "${COMP_WORDS[1]}" = list ] || [ "$COMP_CWORD" -gt 2 ] ||
                words=$("$program" list $gone 2>/dev/null | awk '$1 == "NAME" { head = 1; next } head { print $1 }')
            ;;
        esac
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
        return
    fi
    case $prev in
    --bind-to) words='core numa none' ;;
    --log-level) words='error warn info debug trace' ;;
    --doctor) words='fail warn off' ;;
    --output-filename)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return
        ;;
    *)
        case $cur in
        -*) words=$(_hvdrun_options "$program") ;;
        *) [ "$COMP_CWORD" -ne 1 ] || words='list status scale drain attach' ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -o default -F _hvdrun hvdrun
