# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# bash completion for hvd-doctor. Commands, options and ids of checks come from the program itself.

_hvd_doctor() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]}
    local command=check word words=''
    [ "$prev" = = ] && [ "$COMP_CWORD" -ge 2 ] && prev=${COMP_WORDS[COMP_CWORD - 2]}
    [ "$cur" = = ] && cur=''
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $word in
        check | list | explain | match | diff | bundle | gather | serve | workers)
            command=$word
            break
            ;;
        esac
    done
    COMPREPLY=()
    case $prev in
    --only | --skip | --silence | explain)
        words=$("$program" list 2>/dev/null | awk '{ print $2; print $3 }' | sort -u)
        if [ "${cur%,*}" != "$cur" ]; then
            # completes the last item of a comma-separated list
            mapfile -t COMPREPLY < <(compgen -P "${cur%,*}," -W "$words" -- "${cur##*,}")
            return
        fi
        ;;
    --profile) words='cpu gpu k8s launcher' ;;
    --color) words='auto always never' ;;
    --level) words='1 2 3' ;;
    --data | --root | gather)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return
        ;;
    --rules | --prober | --log | -o | --output)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    --ranks | --local-ranks | --gpus | --timeout | --every | --network-interfaces | --as-cause | --as-noise)
        return
        ;;
    *)
        case $cur in
        -*) words=$("$program" "$command" --help 2>/dev/null | grep -oE -- '(^|[ ,])--?[a-z][a-z-]*' | tr -d ' ,') ;;
        *)
            case $command in
            match | diff)
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
                ;;
            gather)
                mapfile -t COMPREPLY < <(compgen -d -- "$cur")
                return
                ;;
            explain) words=$("$program" list 2>/dev/null | awk '{ print $2 }') ;;
            check) [ "$COMP_CWORD" -eq 1 ] && words='check list explain match diff bundle gather serve workers' ;;
            esac
            ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -o default -F _hvd_doctor hvd-doctor
