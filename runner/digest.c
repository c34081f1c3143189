#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "runner/cell.h"

#define DIGESTS_MAX 2000 /* keeps a done event far below 1 MiB */

static void to_hex(XXH128_hash_t hash, char hex[33])
{
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes.digest[i]);
}

void kg_digest_hex(const void *data, size_t bytes, char hex[33])
{
    to_hex(XXH3_128bits(data, bytes), hex);
}

int kg_digest_file(const char *path, char hex[33])
{
    enum { CHUNK = 1 << 20 };
    int rc = KG_E_IO;
    XXH3_state_t *state = NULL;
    unsigned char *chunk = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return KG_E_IO;
    state = XXH3_createState();
    chunk = malloc(CHUNK);
    if (state == NULL || chunk == NULL) {
        rc = KG_E_MEMORY;
        goto done;
    }
    XXH3_128bits_reset(state);
    for (;;) {
        ssize_t n = read(fd, chunk, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            goto done;
        if (n == 0)
            break;
        XXH3_128bits_update(state, chunk, (size_t)n);
    }
    to_hex(XXH3_128bits_digest(state), hex);
    rc = 0;
done:
    free(chunk);
    XXH3_freeState(state);
    close(fd);
    return rc;
}

void kg_digest_record(struct kg_cell *cell, const struct kg_buf *buf, const void *data)
{
    char key[2 * KG_NAME_MAX + 2];
    char hex[33], both[67];
    snprintf(key, sizeof key, "%s/%s", cell->arm, buf->name);
    kg_digest_hex(data, buf->bytes, hex);
    kg_output_keep(cell, key, data, buf->bytes);
    const char *before = json_string_value(json_object_get(cell->digests, key));
    if (before != NULL) {
        int n = snprintf(both, sizeof both, "%s+%s", before, hex);
        kg_digest_hex(both, (size_t)n, hex);
    } else if (json_object_size(cell->digests) >= DIGESTS_MAX) {
        kg_cell_misuse(cell, "more than %d outputs with a digest", DIGESTS_MAX);
    }
    json_object_set_new(cell->digests, key, json_string(hex));
}
