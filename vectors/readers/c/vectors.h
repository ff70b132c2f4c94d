/* Read the vectors, and judge a function by them. C99, one header, nothing but the standard library.
 *
 * A function is given a test, reads its inputs with av_input, av_number and av_side, and fills the arrays of its
 * results, whatever its own format is. It returns 0, or another number if it refuses the call:
 *
 *     int softmax(const av_test *test, double **out) { const av_tensor *scores = av_input(test, "scores"); ... }
 *     av_file *file = av_open("hard_masked_softmax.json");
 *     if (!file || av_judge(file, "float32", softmax, &failed, &number, stderr)) puts(av_error());
 *     av_close(file);
 *
 * A file is checked as a whole when it is opened: all text, every tensor, and every name of a tensor. A file that is
 * wrong anywhere is refused, and av_error says why. The functions after that need no checks of their own. */
#ifndef ATTNSPEC_VECTORS_H
#define ATTNSPEC_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AV_DEEPEST 32             /* levels of JSON */
#define AV_RANK 16                /* axes of a tensor */
#define AV_RESULTS 8              /* results of a test */
#define AV_LARGEST (1u << 30)     /* numbers in a tensor, an axis of length 0 counted as 1 */

typedef struct av_json {
    char kind; /* '{', '[', '"', '0' for numbers, 't', 'f', 'n' */
    double number;
    char *text;
    size_t size;
    struct av_json *items;
    char **names;
} av_json;

typedef struct {
    const char *name, *type;
    size_t rank, size;
    size_t shape[AV_RANK];
    const unsigned char *raw;
} av_tensor;

typedef struct {
    av_json json, header;
    char *text, *raw;
    av_tensor *tensors;
    size_t count;
} av_file;

typedef struct {
    const av_file *file;
    const av_json *json;
} av_test;

typedef int (*av_function)(const av_test *test, double **out);

static inline char *av_said(void) {
    static char said[256];
    return said;
}

/* Why the last call failed. */
static inline const char *av_error(void) { return av_said(); }

static inline int av_wrong(const char *reason, const char *what) {
    snprintf(av_said(), 256, reason, what);
    return -1;
}

/* ---- JSON ---- */

typedef struct {
    char *at, *end;
} av_place;

static inline char av_next(av_place *place) {
    while (place->at < place->end && strchr(" \t\r\n", *place->at) && *place->at) place->at++;
    return place->at < place->end ? *place->at : 0;
}

/* Strings stay where they are, with a 0 behind each. */
static inline char *av_string(av_place *place) {
    char *begin = place->at + 1, *to = begin;
    for (char *at = begin; at < place->end; at++) {
        if (*at == '"') {
            *to = 0;
            place->at = at + 1;
            return begin;
        }
        if (*at == '\\' && (++at == place->end || !strchr("\"\\/", *at))) return NULL;
        if (!*at) return NULL;
        *to++ = *at;
    }
    return NULL;
}

static inline int av_digits(av_place *place, double *number) {
    char digits[64], *stop;
    size_t size = 0;
    while (place->at < place->end && *place->at && strchr("+-.0123456789eE", *place->at)) {
        if (size == sizeof digits - 1) return -1;
        digits[size++] = *place->at++;
    }
    digits[size] = 0;
    *number = strtod(digits, &stop);
    return size && !*stop ? 0 : -1;
}

static inline int av_word(av_place *place, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(place->end - place->at) < size || memcmp(place->at, word, size)) return -1;
    place->at += size;
    return 0;
}

static inline int av_grow(av_json *into) {
    if (into->size & (into->size - 1)) return 0; /* there is room until the next power of two */
    size_t room = into->size ? 2 * into->size : 1;
    av_json *items = realloc(into->items, room * sizeof *items);
    if (items) into->items = items;
    char **names = realloc(into->names, room * sizeof *names);
    if (names) into->names = names;
    return items && names ? 0 : -1;
}

static inline int av_parse(av_place *place, av_json *into, int depth) {
    memset(into, 0, sizeof *into);
    into->kind = av_next(place);
    switch (into->kind) {
    case '"': return (into->text = av_string(place)) ? 0 : -1;
    case 't': return av_word(place, "true");
    case 'f': return av_word(place, "false");
    case 'n': return av_word(place, "null");
    case '{':
    case '[': break;
    default: into->kind = '0'; return av_digits(place, &into->number);
    }
    char close = into->kind == '{' ? '}' : ']';
    if (depth == AV_DEEPEST) return -1;
    place->at++;
    for (char next; (next = av_next(place)) != close;) {
        if (!next || (into->size && next != ',') || av_grow(into)) return -1;
        if (into->size) place->at++;
        if (close == '}') {
            if (av_next(place) != '"' || !(into->names[into->size] = av_string(place))) return -1;
            if (av_next(place) != ':') return -1;
            place->at++;
        }
        if (av_parse(place, &into->items[into->size++], depth + 1)) return -1;
    }
    place->at++;
    return 0;
}

static inline void av_forget(av_json *json) {
    for (size_t i = 0; i < json->size; i++) av_forget(&json->items[i]);
    free(json->items);
    free(json->names);
}

/* A member of an object of some kind; NULL if there is none. */
static inline const av_json *av_get(const av_json *from, const char *name, char kind) {
    for (size_t i = 0; from && from->kind == '{' && i < from->size; i++)
        if (!strcmp(from->names[i], name)) return from->items[i].kind == kind ? &from->items[i] : NULL;
    return NULL;
}

static inline const char *av_text(const av_json *from, const char *name) {
    const av_json *found = av_get(from, name, '"');
    return found ? found->text : NULL;
}

/* ---- A file ---- */

/* A number of JSON as a size of at most `largest`. */
static inline int av_size(const av_json *json, size_t largest, size_t *size) {
    if (json->kind != '0' || !(json->number >= 0 && json->number <= (double)largest)) return -1;
    *size = (size_t)json->number;
    return (double)*size == json->number ? 0 : -1;
}

static inline size_t av_width(const char *type) {
    static const struct { const char *type; size_t width; } widths[] = {
        {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"BOOL", 1}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (!strcmp(type, widths[i].type)) return widths[i].width;
    return 0;
}

/* A tensor of the header, whose numbers lie within the `room` bytes behind it. */
static inline int av_tensor_of(const av_json *entry, const char *data, size_t room, av_tensor *into) {
    const av_json *shape = av_get(entry, "shape", '['), *offsets = av_get(entry, "data_offsets", '[');
    into->type = av_text(entry, "dtype");
    size_t width = into->type ? av_width(into->type) : 0, span = 1, from, to;
    if (!width || !shape || shape->size > AV_RANK || !offsets || offsets->size != 2) return -1;
    into->rank = shape->size;
    into->size = 1;
    for (size_t i = 0; i < shape->size; i++) {
        if (av_size(&shape->items[i], AV_LARGEST / span, &into->shape[i])) return -1;
        if (into->shape[i]) span *= into->shape[i];
        into->size *= into->shape[i];
    }
    if (av_size(&offsets->items[0], room, &from) || av_size(&offsets->items[1], room, &to)) return -1;
    into->raw = (const unsigned char *)data + from;
    return from <= to && to - from == into->size * width ? 0 : -1;
}

static inline const av_tensor *av_named(const av_file *file, const char *name) {
    for (size_t i = 0; name && i < file->count; i++)
        if (!strcmp(file->tensors[i].name, name)) return &file->tensors[i];
    return NULL;
}

static inline int av_read_tensors(av_file *file, size_t size) {
    uint64_t length = 0;
    if (size < 8) return av_wrong("The file of tensors has no header.%s", "");
    for (int i = 7; i >= 0; i--) length = length << 8 | (unsigned char)file->raw[i];
    if (length > size - 8) return av_wrong("The header of the tensors is cut off.%s", "");
    av_place place = {file->raw + 8, file->raw + 8 + length};
    if (av_parse(&place, &file->header, 0) || av_next(&place) || file->header.kind != '{')
        return av_wrong("The header of the tensors is no JSON object.%s", "");
    file->tensors = calloc(file->header.size + 1, sizeof *file->tensors);
    if (!file->tensors) return av_wrong("There is too little memory.%s", "");
    for (size_t i = 0; i < file->header.size; i++) {
        if (!strcmp(file->header.names[i], "__metadata__")) continue;
        av_tensor *tensor = &file->tensors[file->count++];
        tensor->name = file->header.names[i];
        if (av_tensor_of(&file->header.items[i], place.end, size - 8 - length, tensor))
            return av_wrong("The type, the shape or the place of the tensor %.100s is wrong.", tensor->name);
    }
    return 0;
}

static inline int av_check_test(const av_file *file, const av_json *test) {
    const char *id = av_text(test, "id");
    const av_json *inputs = av_get(test, "inputs", '{'), *outputs = av_get(test, "outputs", '{');
    if (!id || !inputs) return av_wrong("A test has no id or no inputs.%s", "");
    for (size_t i = 0; i < inputs->size; i++) {
        if (inputs->items[i].kind == '{') return av_wrong("%.100s has a formula, which this reader does not read.", id);
        if (inputs->items[i].kind == '"' && strchr(inputs->items[i].text, '/') && !av_named(file, inputs->items[i].text))
            return av_wrong("%.100s names a tensor that is not in the file.", id);
    }
    if (outputs && outputs->size > AV_RESULTS) return av_wrong("%.100s has too many results.", id);
    for (size_t i = 0; outputs && i < outputs->size; i++) {
        const av_json *output = &outputs->items[i];
        const av_tensor *lower = av_named(file, av_text(output, "lower"));
        const av_tensor *upper = av_named(file, av_text(output, "upper"));
        const av_tensor *budget = av_named(file, av_text(output, "budget"));
        if (!lower || !upper || !budget || lower->size != upper->size || lower->size != budget->size)
            return av_wrong("%.100s lacks bounds or a budget of one size.", id);
    }
    return 0;
}

static inline int av_check(const av_file *file) {
    const av_json *groups = av_get(&file->json, "groups", '[');
    if (!groups || !groups->size) return av_wrong("The file has no groups of tests.%s", "");
    for (size_t g = 0; g < groups->size; g++) {
        const av_json *tests = av_get(&groups->items[g], "tests", '[');
        if (!tests || !av_text(&groups->items[g], "format") || !av_get(&groups->items[g], "conventions", '{'))
            return av_wrong("A group has no tests, no format or no conventions.%s", "");
        for (size_t t = 0; t < tests->size; t++)
            if (av_check_test(file, &tests->items[t])) return -1;
    }
    return 0;
}

static inline void av_close(av_file *file) {
    if (!file) return;
    av_forget(&file->json);
    av_forget(&file->header);
    free(file->tensors);
    free(file->text);
    free(file->raw);
    free(file);
}

static inline int av_read_json(av_file *file, size_t size) {
    av_place place = {file->text, file->text + size};
    if (av_parse(&place, &file->json, 0) || av_next(&place) || place.at != place.end || file->json.kind != '{')
        return av_wrong("The file is no JSON object.%s", "");
    return 0;
}

/* The bytes of a file; NULL if it cannot be read. */
static inline char *av_bytes(const char *path, size_t *size) {
    FILE *stream = fopen(path, "rb");
    long end = stream && !fseek(stream, 0, SEEK_END) ? ftell(stream) : -1;
    char *found = end >= 0 ? malloc((size_t)end + 1) : NULL;
    if (found) {
        rewind(stream);
        *size = fread(found, 1, (size_t)end, stream);
    }
    if (stream) fclose(stream);
    if (found && *size == (size_t)end) return found;
    free(found);
    av_wrong("%.200s cannot be read.", path);
    return NULL;
}

/* The path of the tensors, which lie beside the file; NULL if the file names none, or another folder. */
static inline char *av_beside(const char *path, const char *name) {
    if (!name || !*name || *name == '.' || strpbrk(name, "/\\:")) return NULL;
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    char *beside = malloc(folder + strlen(name) + 1);
    if (beside) {
        memcpy(beside, path, folder);
        strcpy(beside + folder, name);
    }
    return beside;
}

/* Open a file of tests and the tensors beside it; NULL if one is wrong, and av_error says why. */
static inline av_file *av_open(const char *path) {
    size_t size = 0;
    char *beside = NULL;
    av_file *file = calloc(1, sizeof *file);
    if (file && (file->text = av_bytes(path, &size)) && !av_read_json(file, size)) {
        if (!(beside = av_beside(path, av_text(&file->json, "tensors"))))
            av_wrong("`tensors` should be the name of a file in the folder of %.150s.", path);
        else if ((file->raw = av_bytes(beside, &size)) && !av_read_tensors(file, size) && !av_check(file)) {
            free(beside);
            return file;
        }
    }
    free(beside);
    av_close(file);
    return NULL;
}

/* ---- A test ---- */

/* A number of a tensor, whatever its type. */
static inline double av_at(const av_tensor *x, size_t place) {
    if (!strcmp(x->type, "F64")) { double n; memcpy(&n, x->raw + 8 * place, 8); return n; }
    if (!strcmp(x->type, "F32")) { float n; memcpy(&n, x->raw + 4 * place, 4); return n; }
    if (!strcmp(x->type, "I64")) { int64_t n; memcpy(&n, x->raw + 8 * place, 8); return (double)n; }
    if (!strcmp(x->type, "BOOL")) return x->raw[place] != 0;
    uint16_t bits;
    memcpy(&bits, x->raw + 2 * place, 2);
    if (!strcmp(x->type, "BF16")) { uint32_t wide = (uint32_t)bits << 16; float n; memcpy(&n, &wide, 4); return n; }
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = ldexp(exponent ? 1024 + fraction : fraction, exponent ? exponent - 25 : -24);
    if (exponent == 31) size = fraction ? NAN : INFINITY;
    return bits >> 15 ? -size : size;
}

/* An input that is an array; NULL where it is not given. */
static inline const av_tensor *av_input(const av_test *test, const char *name) {
    return av_named(test->file, av_text(av_get(test->json, "inputs", '{'), name));
}

static inline const av_json *av_given(const av_test *test, const char *name) {
    const av_json *inputs = av_get(test->json, "inputs", '{');
    for (size_t i = 0; i < inputs->size; i++)
        if (!strcmp(inputs->names[i], name)) return &inputs->items[i];
    return NULL;
}

/* An input that is a number, or 1 and 0 for true and false; what is usual where it is not given. */
static inline double av_number(const av_test *test, const char *name, double usual) {
    const av_json *told = av_given(test, name);
    if (told && told->kind == '0') return told->number;
    return told && (told->kind == 't' || told->kind == 'f') ? told->kind == 't' : usual;
}

/* A side of an input that is a pair, as of a window; what is usual where it is not given, or open. */
static inline double av_side(const av_test *test, const char *name, size_t side, double usual) {
    const av_json *told = av_given(test, name);
    int given = told && told->kind == '[' && side < told->size && told->items[side].kind == '0';
    return given ? told->items[side].number : usual;
}

static inline const av_tensor *av_bound(const av_test *test, size_t result, const char *name) {
    return av_named(test->file, av_text(&av_get(test->json, "outputs", '{')->items[result], name));
}

/* How many results a test has; 0 if the call must be refused. */
static inline size_t av_results(const av_test *test) {
    const av_json *outputs = av_get(test->json, "outputs", '{');
    return outputs ? outputs->size : 0;
}

/* How many numbers a result has: the size of its array `out[result]`. */
static inline size_t av_result_size(const av_test *test, size_t result) {
    return result < av_results(test) ? av_bound(test, result, "lower")->size : 0;
}

static inline int av_within(const av_test *test, size_t result, const double *out) {
    const av_tensor *lower = av_bound(test, result, "lower"), *upper = av_bound(test, result, "upper");
    const av_tensor *budget = av_bound(test, result, "budget");
    for (size_t i = 0; i < lower->size; i++) {
        double low = av_at(lower, i) - av_at(budget, i), high = av_at(upper, i) + av_at(budget, i);
        int is_nan = isnan(av_at(lower, i)) && isnan(out[i]);
        if (!((low <= out[i] && out[i] <= high) || is_nan || isinf(av_at(budget, i)))) return 0;
    }
    return 1;
}

/* Whether a function passes a test; −1 if there is no memory for its results. */
static inline int av_passes(const av_test *test, av_function call) {
    double *out[AV_RESULTS] = {0};
    size_t results = av_results(test);
    int right = 1;
    for (size_t i = 0; i < results; i++)
        if (!(out[i] = calloc(av_result_size(test, i) + 1, sizeof **out))) right = av_wrong("There is too little memory.%s", "");
    if (right == 1) {
        int refused = call(test, out) != 0;
        right = refused == !results;
        for (size_t i = 0; right && i < results; i++) right = av_within(test, i, out[i]);
    }
    for (size_t i = 0; i < results; i++) free(out[i]);
    return right;
}

/* Count the tests of a format that a function fails, and all of them, in the groups that follow the file's own
 * conventions. The ids of those that it fails are written to a stream, if there is one. Return 0, or −1 if there is no
 * such test, and av_error says so. */
static inline int av_judge(const av_file *file, const char *format, av_function call, int *failed, int *number, FILE *ids) {
    const av_json *groups = av_get(&file->json, "groups", '[');
    *failed = *number = 0;
    for (size_t g = 0; g < groups->size; g++) {
        const av_json *group = &groups->items[g], *tests = av_get(group, "tests", '[');
        if (strcmp(av_text(group, "format"), format) || av_get(group, "conventions", '{')->size) continue;
        for (size_t t = 0; t < tests->size; t++, ++*number) {
            av_test test = {file, &tests->items[t]};
            int right = av_passes(&test, call);
            if (right < 0) return -1;
            *failed += !right;
            if (!right && ids) fprintf(ids, "%s\n", av_text(test.json, "id"));
        }
    }
    return *number ? 0 : av_wrong("The file has no tests in the format %.100s.", format);
}

#endif
