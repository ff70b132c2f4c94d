/* Read the vectors, and judge a function by them. C99, one header, nothing but the standard library.
 *
 * A function is given a test, reads its inputs with av_input, av_number and av_side, and fills the arrays of its results, whatever its own
 * format is; what it returns is 0, or else it refuses:
 *
 *     int softmax(const av_test *test, double **out) { const av_tensor *scores = av_input(test, "scores"); ... return 0; }
 *     av_file *file = av_open("hard_masked_softmax.json");
 *     av_judge(file, "float32", softmax, &failed, &number, stderr);
 *
 * Memory is kept until the program ends. */
#ifndef ATTNSPEC_VECTORS_H
#define ATTNSPEC_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct av_json {
    char kind; /* '{', '[', '"', '0' for numbers, 't', 'f', 'n' */
    double number;
    char *text;
    size_t size;
    struct av_json *items;
    char **names;
} av_json;

typedef struct {
    char type[8];
    size_t rank, size;
    size_t shape[16];
    const unsigned char *raw;
} av_tensor;

typedef struct {
    av_json json, header;
    const unsigned char *data;
} av_file;

typedef struct {
    const av_file *file;
    const av_json *json;
} av_test;

static char *av_bytes(const char *path, size_t *size) {
    FILE *stream = fopen(path, "rb");
    if (!stream || fseek(stream, 0, SEEK_END)) { fprintf(stderr, "%s cannot be read.\n", path); exit(2); }
    *size = (size_t)ftell(stream);
    rewind(stream);
    char *found = malloc(*size + 1);
    if (!found || fread(found, 1, *size, stream) != *size) { fprintf(stderr, "%s cannot be read.\n", path); exit(2); }
    found[*size] = 0;
    fclose(stream);
    return found;
}

static char *av_skip(char *at) { return at + strspn(at, " \t\r\n,:"); }

/* Parse what begins at a place; the place where it ends. Strings stay where they are, with a 0 behind each. */
static char *av_parse(char *at, av_json *into) {
    at = av_skip(at);
    memset(into, 0, sizeof *into);
    into->kind = *at;
    if (*at == '"') {
        char *to = into->text = ++at;
        for (; *at && *at != '"'; at++) *to++ = *at == '\\' ? *++at : *at;
        char *end = at + 1;
        *to = 0;
        return end;
    }
    if (*at == '{' || *at == '[') {
        char close = *at == '{' ? '}' : ']';
        for (at = av_skip(at + 1); *at && *at != close; at = av_skip(at)) {
            if ((into->size & (into->size - 1)) == 0) {
                size_t room = into->size ? 2 * into->size : 1;
                into->items = realloc(into->items, room * sizeof *into->items);
                into->names = realloc(into->names, room * sizeof *into->names);
            }
            if (close == '}') {
                av_json name;
                at = av_parse(at, &name);
                into->names[into->size] = name.text;
            }
            at = av_parse(at, &into->items[into->size++]);
        }
        return at + 1;
    }
    if (*at == 't' || *at == 'n') return at + 4;
    if (*at == 'f') return at + 5;
    into->kind = '0';
    into->number = strtod(at, &at);
    return at;
}

static const av_json *av_get(const av_json *from, const char *name) {
    for (size_t i = 0; from && i < from->size; i++)
        if (!strcmp(from->names[i], name)) return &from->items[i];
    return NULL;
}

static av_file *av_open(const char *path) {
    size_t size;
    av_file *file = calloc(1, sizeof *file);
    av_parse(av_bytes(path, &size), &file->json);
    const char *slash = strrchr(path, '/'), *name = av_get(&file->json, "tensors")->text;
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    char *beside = malloc(folder + strlen(name) + 1);
    memcpy(beside, path, folder);
    strcpy(beside + folder, name);
    char *raw = av_bytes(beside, &size);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | (unsigned char)raw[i];
    char *text = calloc(length + 1, 1);
    memcpy(text, raw + 8, length);
    av_parse(text, &file->header);
    file->data = (unsigned char *)raw + 8 + length;
    return file;
}

static const av_tensor *av_named(const av_file *file, const char *name) {
    const av_json *entry = av_get(&file->header, name), *shape = av_get(entry, "shape");
    av_tensor *found = calloc(1, sizeof *found);
    strncpy(found->type, av_get(entry, "dtype")->text, sizeof found->type - 1);
    found->rank = shape->size;
    found->size = 1;
    for (size_t i = 0; i < shape->size; i++) found->size *= found->shape[i] = (size_t)shape->items[i].number;
    found->raw = file->data + (size_t)av_get(entry, "data_offsets")->items[0].number;
    return found;
}

/* A number of a tensor, whatever its type. */
static double av_at(const av_tensor *x, size_t place) {
    if (!strcmp(x->type, "F64")) { double n; memcpy(&n, x->raw + 8 * place, 8); return n; }
    if (!strcmp(x->type, "F32")) { float n; memcpy(&n, x->raw + 4 * place, 4); return n; }
    if (!strcmp(x->type, "I64")) { int64_t n; memcpy(&n, x->raw + 8 * place, 8); return (double)n; }
    if (!strcmp(x->type, "BOOL")) return x->raw[place];
    uint16_t bits;
    memcpy(&bits, x->raw + 2 * place, 2);
    if (!strcmp(x->type, "BF16")) { uint32_t wide = (uint32_t)bits << 16; float n; memcpy(&n, &wide, 4); return n; }
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits >> 15 ? -size : size;
}

/* An input that is an array; NULL where it is not given. */
static const av_tensor *av_input(const av_test *test, const char *name) {
    const av_json *told = av_get(av_get(test->json, "inputs"), name);
    return told && told->kind == '"' ? av_named(test->file, told->text) : NULL;
}

/* An input that is a number, or 1 and 0 for true and false; what is usual where it is not given. */
static inline double av_number(const av_test *test, const char *name, double usual) {
    const av_json *told = av_get(av_get(test->json, "inputs"), name);
    return !told || !strchr("0tf", told->kind) ? usual : told->kind == '0' ? told->number : told->kind == 't';
}

/* A side of an input that is a pair, as of a window; what is usual where it is not given, or open. */
static inline double av_side(const av_test *test, const char *name, size_t side, double usual) {
    const av_json *told = av_get(av_get(test->json, "inputs"), name);
    return told && told->kind == '[' && side < told->size && told->items[side].kind == '0' ? told->items[side].number : usual;
}

static int av_within(const av_file *file, const av_json *wanted, const double *out) {
    const av_tensor *lower = av_named(file, av_get(wanted, "lower")->text), *upper = av_named(file, av_get(wanted, "upper")->text);
    const av_tensor *budget = av_named(file, av_get(wanted, "budget")->text);
    for (size_t i = 0; i < lower->size; i++) {
        double low = av_at(lower, i) - av_at(budget, i), high = av_at(upper, i) + av_at(budget, i);
        if (!((low <= out[i] && out[i] <= high) || (isnan(av_at(lower, i)) && isnan(out[i])) || isinf(av_at(budget, i)))) return 0;
    }
    return 1;
}

/* How many tests of a format a function fails, and how many there are, of the groups that follow the file's own conventions; the ids of those
 * that it fails are written to a stream, if there is one. */
static void av_judge(const av_file *file, const char *format, int (*call)(const av_test *, double **), int *failed, int *number, FILE *ids) {
    const av_json *groups = av_get(&file->json, "groups");
    *failed = *number = 0;
    for (size_t g = 0; g < groups->size; g++) {
        const av_json *group = &groups->items[g], *tests = av_get(group, "tests");
        if (strcmp(av_get(group, "format")->text, format) || av_get(group, "conventions")->size) continue;
        for (size_t t = 0; t < tests->size; t++, ++*number) {
            av_test test = {file, &tests->items[t]};
            const av_json *outputs = av_get(test.json, "outputs");
            double *out[8] = {0};
            for (size_t i = 0; outputs && i < outputs->size; i++)
                out[i] = calloc(av_named(file, av_get(&outputs->items[i], "lower")->text)->size + 1, sizeof(double));
            int refused = call(&test, out) != 0, right = refused == !outputs;
            for (size_t i = 0; right && outputs && i < outputs->size; i++) right = av_within(file, &outputs->items[i], out[i]);
            *failed += !right;
            if (!right && ids) fprintf(ids, "%s\n", av_get(test.json, "id")->text);
        }
    }
}

#endif
