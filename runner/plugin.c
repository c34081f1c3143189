/*
 * Loading of sections and providers. dlopen's own messages are about the dynamic linker;
 * the frequent mistakes get a line that says what to do.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/cell.h"

#define END_OF(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

static int fail(struct kg_error *error, int status, const char *path, const char *text)
{
    return kg_error_at_offset(error, status, path, -1, "%s", text);
}

/* The machine that this program was built for. */
static int native_machine(unsigned char *class_byte, uint16_t *machine)
{
    unsigned char head[20];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return KG_E_IO;
    ssize_t n = read(fd, head, sizeof head);
    close(fd);
    if (n != (ssize_t)sizeof head)
        return KG_E_IO;
    *class_byte = head[EI_CLASS];
    memcpy(machine, head + 18, sizeof *machine);
    return 0;
}

static int check_file(const char *path, struct kg_error *error)
{
    if (path[0] != '/')
        return fail(error, KG_E_INVALID, path, "not an absolute path");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail(error, KG_E_IO, path, strerror(errno));
    unsigned char head[20] = {0};
    struct stat st;
    int rc = 0;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        rc = fail(error, KG_E_IO, path, "not a regular file");
    } else if (read(fd, head, sizeof head) != (ssize_t)sizeof head ||
               memcmp(head, ELFMAG, SELFMAG) != 0) {
        rc = fail(error, KG_E_FORMAT, path, "not a shared object (no ELF header)");
    } else {
        unsigned char class_byte = 0;
        uint16_t ours = 0, theirs = 0;
        memcpy(&theirs, head + 18, sizeof theirs);
        if (native_machine(&class_byte, &ours) == 0 &&
            (class_byte != head[EI_CLASS] || ours != theirs))
            rc = kg_error_at_offset(error, KG_E_FORMAT, path, -1,
                                    "built for another machine (ELF class %u, machine "
                                    "%u; this program has %u, %u)",
                                    head[EI_CLASS], theirs, class_byte, ours);
    }
    close(fd);
    return rc;
}

static int load(struct kg_library *library, const char *path, const char *symbol,
                const void **table, struct kg_error *error)
{
    KG_TRY(check_file(path, error));
    if (kg_digest_file(path, library->digest) != 0)
        return fail(error, KG_E_IO, path, "cannot be read");
    library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library->handle == NULL) {
        const char *why = dlerror();
        const char *missing = why ? strstr(why, "undefined symbol: ") : NULL;
        if (missing != NULL)
            return kg_error_at_offset(error, KG_E_FORMAT, path, -1,
                                      "needs %s, which this kgate lacks: rebuild it "
                                      "against this version",
                                      missing + strlen("undefined symbol: "));
        return fail(error, KG_E_FORMAT, path, why ? why : "dlopen failed");
    }
    *table = dlsym(library->handle, symbol);
    if (*table == NULL)
        return kg_error_at_offset(error, KG_E_FORMAT, path, -1,
                                  "exports no symbol %s (is it declared KG_EXPORT?)",
                                  symbol);
    return 0;
}

static int check_abi(uint32_t abi, uint32_t expected, const char *path,
                     struct kg_error *error)
{
    if (abi == expected)
        return 0;
    return kg_error_at_offset(error, KG_E_FORMAT, path, -1,
                              "built for ABI %u, this kgate has ABI %u: rebuild it",
                              (unsigned)abi, (unsigned)expected);
}

static int check_size(uint32_t size, size_t least, const char *what, const char *path,
                      struct kg_error *error)
{
    if (size >= least)
        return 0;
    return kg_error_at_offset(error, KG_E_FORMAT, path, -1,
                              "its %s has %u bytes, at least %zu are needed", what,
                              (unsigned)size, least);
}

int kg_section_verify(const struct kg_section *section, const char *path,
                      const char *name, struct kg_error *error)
{
    KG_TRY(check_abi(section->abi, KG_SECTION_ABI, path, error));
    KG_TRY(check_size(section->size, END_OF(struct kg_section, plan), "struct kg_section",
                      path, error));
    if (section->name == NULL || section->name[0] == '\0')
        return fail(error, KG_E_FORMAT, path, "the section has no name");
    if (name != NULL && strcmp(name, section->name) != 0)
        return kg_error_at_offset(error, KG_E_FORMAT, path, -1,
                                  "holds section \"%s\", not \"%s\"", section->name,
                                  name);
    if (section->plan == NULL)
        return fail(error, KG_E_FORMAT, path, "the section has no plan()");
    return 0;
}

int kg_provider_verify(const struct kg_provider *provider, const char *path,
                       struct kg_error *error)
{
    KG_TRY(check_abi(provider->abi, KG_PROVIDER_ABI, path, error));
    KG_TRY(check_size(provider->size, END_OF(struct kg_provider, device),
                      "struct kg_provider", path, error));
    const struct kg_device_ops *d = provider->device;
    if (provider->name == NULL || d == NULL)
        return fail(error, KG_E_FORMAT, path,
                    "the provider has no name or no device table");
    KG_TRY(check_size(d->size, END_OF(struct kg_device_ops, last_error), "device table",
                      path, error));
    if (!d->count || !d->open || !d->close || !d->info || !d->alloc || !d->release ||
        !d->upload || !d->download || !d->copy || !d->fill || !d->stream_create ||
        !d->stream_destroy || !d->sync || !d->last_error)
        return fail(error, KG_E_FORMAT, path, "the device table lacks a required entry");
    return 0;
}

int kg_section_load(struct kg_library *library, const char *path, const char *name,
                    const struct kg_section **section, struct kg_error *error)
{
    const void *table = NULL;
    KG_TRY(load(library, path, KG_SECTION_SYMBOL, &table, error));
    *section = table;
    return kg_section_verify(*section, path, name, error);
}

int kg_provider_load(struct kg_library *library, const char *path,
                     const struct kg_provider **provider, struct kg_error *error)
{
    const void *table = NULL;
    KG_TRY(load(library, path, KG_PROVIDER_SYMBOL, &table, error));
    *provider = table;
    return kg_provider_verify(*provider, path, error);
}
