# bash completion for kgate; written by tools/cli.py
_kgate()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local words
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W 'run list models diff report merge results prune version help' -- "$cur"))
        return
    fi
    case $prev in
    --cell|--fail-on|--jobs|--keep|--last|--limit|--limit-cell|--limit-section|--margin-rise|--only|--param|--schedule|--seed|--shard|--spread|--tag|-c|-j|-k|-n|-p|-s|-t|-x)
        COMPREPLY=($(true))
        return ;;
    --device|-d)
        COMPREPLY=($(compgen -W 'auto emu cuda' -- "$cur"))
        return ;;
    --against|--model|--models|--output|--provider|-m)
        COMPREPLY=($(compgen -f -- "$cur"))
        return ;;
    --plugin-dir|--results)
        COMPREPLY=($(compgen -d -- "$cur"))
        return ;;
    --format|-F)
        COMPREPLY=($(compgen -W 'text markdown json junit' -- "$cur"))
        return ;;
    esac
    case ${COMP_WORDS[1]} in
    run) words='--tag --only --cell --fast --shard --param --device --provider --against --plugin-dir --model --models --synthetic-activations --jobs --seed --schedule --limit-cell --limit-section --require-complete --bench --bench-warm --timings --results --output --json --quiet --verbose --no-color --help -t -o -c -f -p -d -m -j -s -q -v -h' ;;
    list) words='--tag --only --cell --fast --shard --param --plugin-dir --model --models --cells --json --verbose --no-color --help -t -o -c -f -p -m -v -h' ;;
    models) words='--model --models --verify --json --verbose --no-color --help -m -v -h' ;;
    diff) words='--format --fail-on --only --limit --margin-rise --spread --results --output --help -F -x -n -o -h' ;;
    report) words='--output --last --results --help -o -h' ;;
    merge) words='--output --results --help -o -h' ;;
    results) words='--limit --results --help -n -h' ;;
    prune) words='--keep --dry-run --results --help -k -h' ;;
    version) words='' ;;
    help) COMPREPLY=($(compgen -W 'run list models diff report merge results prune version help' -- "$cur")); return ;;
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
    else
        COMPREPLY=($(compgen -f -- "$cur"))
        case ${COMP_WORDS[1]} in
        run|list) COMPREPLY+=($(compgen -W 'quick full nightly release' -- "$cur")) ;;
        diff|report|merge) COMPREPLY+=($(compgen -W '@latest @previous' -- "$cur")) ;;
        esac
    fi
}
complete -o filenames -F _kgate kgate
