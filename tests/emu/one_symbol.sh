#!/bin/sh
# A provider exports kgate_provider and nothing else. Usage: one_symbol.sh NM FILE
set -eu
symbols=$("$1" -D --defined-only "$2" | awk '{print $3}')
if [ "$symbols" != kgate_provider ]; then
    echo "$2 exports: $symbols"
    exit 1
fi
