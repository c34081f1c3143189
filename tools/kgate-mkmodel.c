/*
 * kgate-mkmodel: writes a stand-in for a model file that is not at hand: the tensor names,
 * types and shapes that gate sections pin, with pseudo-random contents. It is marked
 * kgate.synthetic, and a run on it says so wherever it is shown.
 *
 * Exit status: 0 written, 1 not written (one line says why), 2 wrong usage.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runner/artifact.h"
#include "tools/mkmodel.h"

static const struct {
    const char *format;
    int (*write)(const struct mk_spec *spec, const char *out, struct kg_error *error);
} writers[] = {
    {"gguf",            mk_write_gguf       },
    {"safetensors",     mk_write_safetensors},
    {"safetensors-dir", mk_write_directory  },
};

static int usage(FILE *file, int status)
{
    fputs(
        "usage: kgate-mkmodel --spec SPEC.yaml -o OUT [--format FORMAT]\n"
        "\n"
        "Writes a stand-in model as SPEC.yaml describes it (tools/specs/ has some).\n"
        "\n"
        "  --spec FILE      the description\n"
        "  -o, --output OUT the file to write, or the directory (safetensors-dir)\n"
        "  --format FORMAT  gguf, safetensors or safetensors-dir (default: the spec's)\n"
        "  --help           this text\n",
        file);
    return status;
}

/* Opens what was written with the reader that kgate run uses. */
static int check(const struct mk_spec *spec, const char *out, const char *format,
                 struct kg_error *error)
{
    struct kg_artifact *artifact;
    uint64_t bytes = 0;
    KG_TRY(kg_artifact_open(out, format, false, &artifact, error));
    size_t count = kg_artifact_count(artifact);
    bool synthetic = kg_artifact_is_synthetic(artifact);
    for (size_t i = 0; i < count; i++)
        bytes += kg_artifact_at(artifact, i)->bytes;
    kg_artifact_close(artifact);
    if (count != spec->n_tensors || !synthetic)
        return kg_error_set(error, KG_E_FORMAT, "what was written does not read back");
    printf("%s: %zu tensors, %" PRIu64 " bytes of data, format %s, synthetic\n", out,
           count, bytes, format);
    return KG_OK;
}

static int make(const char *path, const char *out, const char *format,
                struct kg_error *error)
{
    struct mk_spec spec;
    size_t which = 0, count = sizeof writers / sizeof writers[0];
    int rc = mk_spec_load(path, &spec, error);
    if (rc == 0) {
        format = format ? format : spec.format;
        while (which < count && strcmp(writers[which].format, format) != 0)
            which++;
        if (which == count)
            rc = kg_error_set(error, KG_E_INVALID,
                              "unknown format \"%.40s\", expected gguf, safetensors or "
                              "safetensors-dir",
                              format);
    }
    if (rc == 0)
        rc = writers[which].write(&spec, out, error);
    if (rc == 0)
        rc = check(&spec, out, format, error);
    mk_spec_free(&spec);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"spec",   required_argument, NULL, 's'},
        {"output", required_argument, NULL, 'o'},
        {"format", required_argument, NULL, 'f'},
        {"help",   no_argument,       NULL, 'h'},
        {NULL,     0,                 NULL, 0  },
    };
    const char *spec = NULL, *out = NULL, *format = NULL;
    struct kg_error error;
    char line[1200];
    int option;
    while ((option = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
        if (option == 's')
            spec = optarg;
        else if (option == 'o')
            out = optarg;
        else if (option == 'f')
            format = optarg;
        else
            return option == 'h' ? usage(stdout, 0) : usage(stderr, 2);
    }
    if (!spec || !out || optind != argc)
        return usage(stderr, 2);
    kg_error_init(&error);
    if (make(spec, out, format, &error) == 0)
        return 0;
    fprintf(stderr, "kgate-mkmodel: %s\n", kg_error_line(&error, line, sizeof line));
    return 1;
}
