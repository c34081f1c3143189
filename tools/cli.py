#!/usr/bin/env python3
"""What kgate's own help says of its options, for the completions and the man pages.

usage: cli.py KGATE write     write tools/completions/ anew
       cli.py KGATE check     fail if they or the man pages say anything else
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tools" / "completions"
COMMANDS = ["run", "list", "models", "diff", "report", "merge", "results", "prune",
            "version", "help"]
ROW = re.compile(r"^  (?:-(\w), |    )--([a-z-]+)(?: (\S+))?(?:\s{2,}(\S.*))?$")
VALUES = {"DEVICE": "auto emu cuda", "FORMAT": "text markdown json junit"}


def options(kgate, command):
    """[(letter or "", name, argument or "", first words of the help)]"""
    text = subprocess.run([kgate, "help", command], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    found, lines = [], text.splitlines()
    for i, line in enumerate(lines):
        row = ROW.match(re.sub(r"(--[a-z-]+ \S+) (?=[a-z])", r"\1  ", line))
        if not row:
            continue
        letter, name, argument, words = row.groups()
        words = words or lines[i + 1].strip()
        found.append((letter or "", name, argument or "", re.sub(r"(;.*| \((default|required).*)$", "", words)))
    return found


def summaries(kgate):
    text = subprocess.run([kgate, "help"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    usage = text.split("\n\n")[1]
    return dict(re.findall(r"kgate ([a-z]+)\b[^\n]*?\s{2,}(\S[^\n]*)", usage))


def bash(table):
    out = ["# bash completion for kgate; written by tools/cli.py", "_kgate()", "{",
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}",
           "    local words", "    COMPREPLY=()",
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then",
           "        COMPREPLY=($(compgen -W '%s' -- \"$cur\"))" % " ".join(COMMANDS),
           "        return", "    fi", "    case $prev in"]
    takes = {}
    for command in table:
        for letter, name, argument, _ in table[command]:
            if argument:
                takes.setdefault(VALUES.get(argument.split("[")[0], kind(argument)),
                                 set()).update({"--" + name} | ({"-" + letter} if letter else set()))
    # A letter may mean one thing for one command and another for the next.
    for values, names in sorted(takes.items()):
        names = sorted(n for n in names if sum(n in other for other in takes.values()) == 1)
        action = {"file": "compgen -f -- \"$cur\"", "folder": "compgen -d -- \"$cur\"",
                  "": "true"}.get(values, "compgen -W '%s' -- \"$cur\"" % values)
        out += ["    " + "|".join(names) + ")", "        COMPREPLY=($(%s))" % action,
                "        return ;;"]
    out += ["    esac", "    case ${COMP_WORDS[1]} in"]
    for command in table:
        words = " ".join("--" + o[1] for o in table[command])
        words += "".join(" -" + o[0] for o in table[command] if o[0])
        out += ["    %s) words='%s' ;;" % (command, words)]
    out += ["    help) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;"
            % " ".join(COMMANDS), "    esac", "    if [[ $cur == -* ]]; then",
            "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))", "    else",
            "        COMPREPLY=($(compgen -f -- \"$cur\"))",
            "        case ${COMP_WORDS[1]} in",
            "        run|list) COMPREPLY+=($(compgen -W 'quick full nightly release' -- \"$cur\")) ;;",
            "        diff|report|merge) COMPREPLY+=($(compgen -W '@latest @previous' -- \"$cur\")) ;;",
            "        esac", "    fi", "}", "complete -o filenames -F _kgate kgate", ""]
    return "\n".join(out)


def kind(argument):
    return {"FILE": "file", "DIR": "folder"}.get(argument, "")


def quote(text):
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh(table, about):
    out = ["#compdef kgate", "# zsh completion for kgate; written by tools/cli.py",
           "_kgate() {", "    local -a commands", "    commands=("]
    out += ["        '%s:%s'" % (c, quote(about.get(c, c))) for c in COMMANDS]
    out += ["    )", "    if (( CURRENT == 2 )); then",
            "        _describe command commands", "        return", "    fi",
            "    shift words", "    (( CURRENT-- ))", "    case ${words[1]} in"]
    for command in table:
        out += ["    %s)" % command, "        _arguments \\"]
        for letter, name, argument, words in table[command]:
            action = ""
            if argument:
                values = VALUES.get(argument.split("[")[0])
                what = "(%s)" % values if values else {"FILE": "_files", "DIR": "_files -/"}.get(argument, " ")
                action = ":%s:%s" % (quote(argument), what)
            names = ["--" + name + ("=" if argument else "")] + (
                ["-" + letter + ("+" if argument else "")] if letter else [])
            for n in names:
                out += ["            '*%s[%s]%s' \\" % (n, quote(words), action)]
        out += ["            '*:file:_files'", "        ;;"]
    out += ["    help) _describe command commands ;;", "    esac", "}", "_kgate \"$@\"", ""]
    return "\n".join(out)


def fish(table, about):
    out = ["# fish completion for kgate; written by tools/cli.py"]
    for c in COMMANDS:
        out += ["complete -c kgate -n __fish_use_subcommand -f -a %s -d '%s'"
                % (c, about.get(c, c).replace("'", "\\'"))]
    for command in table:
        for letter, name, argument, words in table[command]:
            line = "complete -c kgate -n '__fish_seen_subcommand_from %s'" % command
            line += (" -s " + letter if letter else "") + " -l " + name
            if argument:
                values = VALUES.get(argument.split("[")[0])
                line += " -x -a '%s'" % values if values else " -r"
            out += [line + " -d '%s'" % words.replace("'", "\\'")]
    return "\n".join(out + [""])


def man_errors(table):
    """Options that the man pages lack, and options that kgate lacks."""
    pages = {"kgate.1": [c for c in table if c != "diff"], "kgate-diff.1": ["diff"]}
    for page, commands in pages.items():
        text = (ROOT / "docs" / "man" / page).read_text()
        items = set(re.findall(r"^\.It (?:Fl (\w) , )?Fl Fl ([a-z-]+)(?: Ar (\S+))?$", text, re.M))
        wanted = {(l, n, a) for c in commands for l, n, a, _ in table[c]}
        for what, rows in (("lacks", wanted - items), ("invents", items - wanted)):
            for letter, name, argument in sorted(rows):
                yield "%s %s -%s --%s %s" % (page, what, letter, name, argument)
        for command in commands:
            if page == "kgate.1" and not re.search(r"^\.(It|Ss|Nm)\b.*\b%s\b" % command, text, re.M):
                yield "%s does not name the command %s" % (page, command)


def key_errors():
    """Keys of the tables in docs/ that the man pages of the formats lack."""
    for name in ("manifest", "models"):
        text = (ROOT / "docs" / (name + ".md")).read_text()
        page = (ROOT / "docs" / "man" / ("kgate-%s.5" % name)).read_text()
        keys = set()
        for row in re.findall(r"^\| (`[^|]*) \| (?:yes|no|one of them|[0-9]+\w+) ", text, re.M):
            keys.update(re.findall(r"`([a-z0-9_]+)`", row))
        if len(keys) < 6:
            yield "docs/%s.md: no tables of keys were found" % name
        for key in sorted(keys - set(re.findall(r"^\.It (?:Ic|Cm) (\S+)", page, re.M))):
            yield "kgate-%s.5 lacks the key %s" % (name, key)


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in ("write", "check"):
        sys.exit(__doc__)
    kgate = str(pathlib.Path(sys.argv[1]).resolve())
    table = {c: options(kgate, c) for c in COMMANDS if c != "help"}
    about = summaries(kgate)
    if len(table["run"]) < 20 or len(table["diff"]) < 8:
        sys.exit("kgate's help is not what this script reads")
    files = {"kgate.bash": bash(table), "_kgate": zsh(table, about),
             "kgate.fish": fish(table, about)}
    errors = []
    for name, text in files.items():
        if sys.argv[2] == "write":
            (FOLDER / name).write_text(text)
        elif (FOLDER / name).read_text() != text:
            errors.append("tools/completions/%s is not what kgate's help says: "
                          "tools/cli.py KGATE write" % name)
    if sys.argv[2] == "check":
        errors += list(man_errors(table)) + list(key_errors())
    print("\n".join(errors) if errors else "%d options" % sum(map(len, table.values())))
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
