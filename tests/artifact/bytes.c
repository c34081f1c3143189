#include "bytes.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runner/artifact_impl.h"

static void require(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

struct out {
    uint8_t *bytes;
    size_t at;
};

static void put(struct out *out, const void *bytes, size_t size)
{
    memcpy(out->bytes + out->at, bytes, size);
    out->at += size;
}

static void put32(struct out *out, uint32_t value)
{
    put(out, &value, 4);
}

static void put64(struct out *out, uint64_t value)
{
    put(out, &value, 8);
}

static void put_text(struct out *out, const char *text)
{
    put64(out, strlen(text));
    put(out, text, strlen(text));
}

void base_gguf(uint8_t bytes[G_SIZE])
{
    struct out out = {bytes, 0};
    memset(bytes, 0, G_SIZE);
    put(&out, "GGUF", 4);
    put32(&out, 3);
    put64(&out, 2);
    put64(&out, 3);
    put_text(&out, "general.alignment");
    put32(&out, 4);
    put32(&out, 32);
    put_text(&out, "a.s");
    put32(&out, 8);
    put_text(&out, "hi");
    put_text(&out, "a.l");
    put32(&out, 9);
    put32(&out, 8);
    put64(&out, 1);
    put_text(&out, "x");
    put_text(&out, "t0");
    put32(&out, 2);
    put64(&out, 32);
    put64(&out, 2);
    put32(&out, 8);
    put64(&out, 0);
    put_text(&out, "t1");
    put32(&out, 1);
    put64(&out, 4);
    put32(&out, 0);
    put64(&out, 96);
    require(out.at == G_INFOS_END, "the layout of base_gguf");
    for (size_t i = G_DATA; i < G_SIZE; i++)
        bytes[i] = (uint8_t)(i * 7);
}

size_t safetensors_file(uint8_t *out, size_t room, const char *header, size_t data_bytes)
{
    uint64_t length = strlen(header);
    size_t size = 8 + length + data_bytes;
    require(size <= room, "room for a file");
    memcpy(out, &length, 8);
    memcpy(out + 8, header, length);
    memset(out + 8 + length, 0x5a, data_bytes);
    return size;
}

struct kg_artifact *open_path(const char *path, const char *format, char *line,
                              size_t line_size)
{
    struct kg_artifact *artifact;
    struct kg_error error;
    char whole[2048];
    kg_error_init(&error);
    line[0] = '\0';
    if (kg_artifact_open(path, format, false, &artifact, &error) == 0)
        return artifact;
    kg_error_line(&error, whole, sizeof whole);
    size_t length = strlen(path);
    if (strncmp(whole, path, length) == 0)
        snprintf(line, line_size, "FILE%s", whole + length);
    else
        snprintf(line, line_size, "%s", whole);
    return NULL;
}

struct kg_artifact *open_bytes(const void *bytes, size_t size, const char *format,
                               char *line, size_t line_size)
{
    char path[64];
    int fd = memfd_create("kgate-test", MFD_CLOEXEC);
    require(fd >= 0, "memfd_create");
    require(write(fd, bytes, size) == (ssize_t)size, "write");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct kg_artifact *artifact = open_path(path, format, line, line_size);
    close(fd);
    return artifact;
}

void touch_everything(const struct kg_artifact *artifact)
{
    volatile uint8_t sink = 0;
    for (size_t i = 0; i < kg_artifact_count(artifact); i++) {
        const struct kg_tensor *t = kg_artifact_at(artifact, i);
        const uint8_t *data = t->data;
        const struct kg_mapped *file = artifact->files;
        while (data < file->base || data > file->base + file->size)
            if (++file == artifact->files + artifact->n_files)
                abort();
        if (t->bytes > (size_t)(file->base + file->size - data))
            abort();
        if (t->bytes > 0)
            sink = (uint8_t)(sink + data[0] + data[t->bytes - 1]);
        if (kg_artifact_find(artifact, t->name) != t || t->n_dims > 8)
            abort();
    }
    (void)sink;
}

void write_file(const char *directory, const char *name, const void *bytes, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(fd >= 0, path);
    require(write(fd, bytes, size) == (ssize_t)size, path);
    close(fd);
}

const char *scratch_directory(void)
{
    static char path[256];
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/kgate-test-XXXXXX", base && *base ? base : "/tmp");
    require(mkdtemp(path) != NULL, path);
    return path;
}

void remove_directory(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    require(directory != NULL, path);
    while ((entry = readdir(directory)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    rmdir(path);
}
