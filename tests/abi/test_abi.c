/*
 * The released layouts (layouts.txt) against the headers: what was released keeps its offset
 * and its width, and a struct that says its size only grows at its end. One that does not, such
 * as a launcher's arguments, never grows: who was built with less would have the rest read
 * from behind it. A break needs a new KG_PROVIDER_ABI or
 * KG_SECTION_ABI, which is part of the file too.
 *
 * The numbers of a line are offset and width; of a value 0 and the value; of a launcher 0 and a
 * checksum of its types.
 *
 * usage: test_abi LAYOUTS        compare
 *        test_abi --print        the layouts as they are now
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kgate/check.h"
#include "kgate/kernels.h"
#include "kgate/section.h"

struct item {
    const char *type, *member;
    size_t offset, width;
};

#define MEMBER(type, member)                                                             \
    {                                                                                    \
#type, #member, offsetof(struct type, member),                                   \
            sizeof(((struct type *)0)->member)                                           \
    }
#define SIZE(type)                                                                       \
    {                                                                                    \
#type, "(size)", 0, sizeof(struct type)                                          \
    }
#define VALUE(name, value)                                                               \
    {                                                                                    \
        name, "(value)", 0, (size_t)(value)                                              \
    }

static const struct item items[] = {
#include "abi_items.inc"
};

enum { N_ITEMS = sizeof items / sizeof items[0] };

static const struct item *find(const char *type, const char *member)
{
    for (size_t i = 0; i < N_ITEMS; i++)
        if (strcmp(items[i].type, type) == 0 && strcmp(items[i].member, member) == 0)
            return &items[i];
    return NULL;
}

static void print_all(void)
{
    for (size_t i = 0; i < N_ITEMS; i++)
        printf("%s %s %zu %zu\n", items[i].type, items[i].member, items[i].offset,
               items[i].width);
}

static int compare(const char *path)
{
    char type[64], member[64];
    size_t offset, width, n = 0;
    int bad = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    while (fscanf(file, "%63s %63s %zu %zu", type, member, &offset, &width) == 4) {
        const struct item *now = find(type, member);
        n++;
        if (now == NULL) {
            printf("%s.%s was released and is gone\n", type, member);
            bad++;
        } else if (strcmp(member, "(size)") == 0 && find(type, "size")
                       ? now->width < width
                       : now->offset != offset || now->width != width) {
            printf("%s.%s was released as %zu, %zu, and is %zu, %zu\n", type, member,
                   offset, width, now->offset, now->width);
            bad++;
        }
    }
    if (!feof(file) || n == 0) {
        printf("%s: line %zu cannot be read\n", path, n + 1);
        bad++;
    }
    fclose(file);
    printf("%zu released, %d broken, %zu known now\n", n, bad, (size_t)N_ITEMS);
    return bad > 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: test_abi LAYOUTS | --print\n", stderr);
        return 2;
    }
    if (strcmp(argv[1], "--print") == 0) {
        print_all();
        return 0;
    }
    return compare(argv[1]);
}
