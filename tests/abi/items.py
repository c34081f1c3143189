#!/usr/bin/env python3
"""Writes one line a member of every struct in kgate's headers, for test_abi.c.

usage: items.py OUTPUT HEADER...
"""
import re
import sys
import zlib


def members(body):
    """Names of the members of a struct; bodies hold no nested struct."""
    for declaration in body.split(";"):
        declaration = " ".join(declaration.split())
        function = re.match(r".*?\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
        if function:
            yield function.group(1)
        elif declaration:
            for part in declaration.split(","):
                yield re.search(r"(\w+)\s*(\[[^]]*\]\s*)*$", part).group(1)


def signatures(body):
    """Of each function pointer its name and a checksum of its types, without the names of
    the parameters."""
    for declaration in body.split(";"):
        declaration = " ".join(declaration.split())
        function = re.match(r"(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)$", declaration)
        if not function:
            continue
        result, name, parameters = function.groups()
        types = [result.strip()]
        for parameter in parameters.split(","):
            array = parameter.count("[")
            parameter = re.sub(r"\[[^]]*\]", "", parameter).strip()
            if re.search(r"[\w*]\s*\b\w+$", parameter) and \
                    not re.fullmatch(r"(const )?(struct )?\w+", parameter):
                parameter = re.sub(r"\w+$", "", parameter)
            types.append(re.sub(r"\s+", "", parameter) + "*" * array)
        yield name, zlib.crc32(" ".join(types).encode())


def main():
    lines = ['VALUE("KG_PROVIDER_ABI", KG_PROVIDER_ABI),',
             'VALUE("KG_SECTION_ABI", KG_SECTION_ABI),']
    for path in sorted(sys.argv[2:]):
        text = re.sub(r"/\*.*?\*/", "", open(path).read(), flags=re.S)
        text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.S | re.M)
        for name, body in re.findall(r"\bstruct (\w+)\s*\{(.*?)\n\};", text, re.S):
            if "{" in body:
                sys.exit("%s: struct %s holds something nested" % (path, name))
            lines.append("SIZE(%s)," % name)
            lines += ["MEMBER(%s, %s)," % (name, m) for m in members(body)]
            lines += ['{"%s", "%s()", 0, %uu},' % (name, f, c) for f, c in signatures(body)]
        for body in re.findall(r"\benum \w+\s*\{(.*?)\n\};", text, re.S):
            lines += ['VALUE("%s", %s),' % (e, e)
                      for e in re.findall(r"(?:^|,)\s*(KG_\w+)", body)]
    if len(lines) < 100:
        sys.exit("only %d members were found" % len(lines))
    open(sys.argv[1], "w").write("\n".join(lines) + "\n")


main()
