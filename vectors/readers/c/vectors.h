/* Read the vectors, and judge a function by them. C99 or C++, one header, nothing but the standard library.
 *
 * A function is given a test, reads its inputs with av_input, av_number and av_side, and fills the arrays of its
 * results, whatever its own format is. It returns 0, AV_UNSUPPORTED if it does not support the call (then the test is
 * skipped), or another number if it refuses the call:
 *
 *     int softmax(const av_test *test, double **out) { const av_tensor *scores = av_input(test, "scores"); ... }
 *     av_file *file = av_open("hard_masked_softmax.json");
 *     av_declared declared = {"float32", "mask", ""};
 *     if (!file || av_judge(file, &declared, softmax, &counts, stderr)) puts(av_error());
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
    const av_json *json, *reading; /* the test, and the part of it whose results hold under the declared conventions */
} av_test;

typedef int (*av_function)(const av_test *test, double **out);

#define AV_UNSUPPORTED -2 /* what a function returns for a call that it does not support */

/* What a function declares: its arithmetic, the optional arguments that it takes, such as "mask,causal", and the
 * conventions in which it differs from the file, such as "rope_pairing=half". NULL is "". */
typedef struct {
    const char *arithmetic, *features, *conventions;
} av_declared;

/* How many tests pass, fail and are skipped. */
typedef struct {
    int pass, fail, skip;
} av_counts;

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
    av_json *items = (av_json *)realloc(into->items, room * sizeof *items);
    if (items) into->items = items;
    char **names = (char **)realloc(into->names, room * sizeof *names);
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

/* A member of an object; NULL if there is none. */
static inline const av_json *av_member(const av_json *from, const char *name) {
    for (size_t i = 0; from && from->kind == '{' && i < from->size; i++)
        if (!strcmp(from->names[i], name)) return &from->items[i];
    return NULL;
}

/* A member of an object of some kind; NULL if there is none. */
static inline const av_json *av_get(const av_json *from, const char *name, char kind) {
    const av_json *found = av_member(from, name);
    return found && found->kind == kind ? found : NULL;
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
    file->tensors = (av_tensor *)calloc(file->header.size + 1, sizeof *file->tensors);
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

/* Whether each result of a test, or of a reading of it, has bounds and a budget of one size. */
static inline int av_check_outputs(const av_file *file, const char *id, const av_json *reading) {
    const av_json *outputs = av_get(reading, "outputs", '{');
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

static inline int av_check_test(const av_file *file, const av_json *test) {
    const char *id = av_text(test, "id");
    const av_json *inputs = av_get(test, "inputs", '{'), *readings = av_get(test, "readings", '[');
    if (!id || !inputs) return av_wrong("A test has no id or no inputs.%s", "");
    for (size_t i = 0; i < inputs->size; i++) {
        if (inputs->items[i].kind == '{') return av_wrong("%.100s has a formula, which this reader does not read.", id);
        if (inputs->items[i].kind == '"' && strchr(inputs->items[i].text, '/') && !av_named(file, inputs->items[i].text))
            return av_wrong("%.100s names a tensor that is not in the file.", id);
    }
    for (size_t i = 0; readings && i < readings->size; i++) {
        if (!av_get(&readings->items[i], "conventions", '{')) return av_wrong("%.100s has a reading without conventions.", id);
        if (av_check_outputs(file, id, &readings->items[i])) return -1;
    }
    return av_check_outputs(file, id, test);
}

static inline int av_check(const av_file *file) {
    const av_json *groups = av_get(&file->json, "groups", '[');
    if (!groups || !groups->size) return av_wrong("The file has no groups of tests.%s", "");
    for (size_t g = 0; g < groups->size; g++) {
        const av_json *tests = av_get(&groups->items[g], "tests", '[');
        if (!tests || !av_text(&groups->items[g], "format") || !av_get(&groups->items[g], "conventions", '{'))
            return av_wrong("A group has no tests, no format or no conventions.%s", "");
        const av_json *features = av_member(&groups->items[g], "features");
        if (features && features->kind != '[') return av_wrong("The features of a group are not names.%s", "");
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
    char *found = end >= 0 ? (char *)malloc((size_t)end + 1) : NULL;
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
    char *beside = (char *)malloc(folder + strlen(name) + 1);
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
    av_file *file = (av_file *)calloc(1, sizeof *file);
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
    return av_member(av_get(test->json, "inputs", '{'), name);
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
    return av_named(test->file, av_text(&av_get(test->reading, "outputs", '{')->items[result], name));
}

/* How many results a test has; 0 if the call must be refused. */
static inline size_t av_results(const av_test *test) {
    const av_json *outputs = av_get(test->reading, "outputs", '{');
    return outputs ? outputs->size : 0;
}

/* How many numbers a result has: the size of its array `out[result]`. */
static inline size_t av_result_size(const av_test *test, size_t result) {
    return result < av_results(test) ? av_bound(test, result, "lower")->size : 0;
}

/* ---- A judgement ---- */

typedef struct {
    char text[768];
    size_t size;
} av_sentence;

static inline void av_add(av_sentence *to, const char *text) {
    size_t room = sizeof to->text - 1 - to->size, size = strlen(text) < room ? strlen(text) : room;
    memcpy(to->text + to->size, text, size);
    to->text[to->size += size] = 0;
}

static inline void av_add_number(av_sentence *to, const char *form, double number) {
    char text[64];
    snprintf(text, sizeof text, form, number);
    av_add(to, text);
}

/* Add the index of an entry, given its place row by row. */
static inline void av_add_index(av_sentence *to, const av_tensor *of, size_t place) {
    size_t index[AV_RANK];
    for (size_t axis = of->rank; axis--; place /= of->shape[axis]) index[axis] = place % of->shape[axis];
    for (size_t axis = 0; axis < of->rank; axis++) av_add_number(to, axis ? ", %.0f" : "%.0f", (double)index[axis]);
}

/* Add a convention: "name=value". */
static inline void av_add_convention(av_sentence *to, const char *before, const char *name, const av_json *value) {
    av_add(to, before);
    av_add(to, name);
    av_add(to, "=");
    if (value->kind == '"') av_add(to, value->text);
    else av_add_number(to, "%.17g", value->number);
}

/* Add the entry that is farthest outside its error limit. Return whether there is one. */
static inline int av_outside(const av_test *test, size_t result, const double *out, av_sentence *to) {
    const av_tensor *lower = av_bound(test, result, "lower"), *upper = av_bound(test, result, "upper");
    const av_tensor *budget = av_bound(test, result, "budget");
    size_t worst = 0, number = 0;
    double most = -1;
    for (size_t i = 0; i < lower->size; i++) {
        double low = av_at(lower, i), high = av_at(upper, i), limit = av_at(budget, i);
        if ((low - limit <= out[i] && out[i] <= high + limit) || (isnan(low) && isnan(out[i])) || isinf(limit)) continue;
        double limits = limit == 0 || isnan(low) || isnan(out[i]) ? INFINITY : fmax(low - out[i], out[i] - high) / limit;
        if (limits > most) most = limits, worst = i;
        number++;
    }
    if (!number) return 0;
    av_add(to, av_get(test->reading, "outputs", '{')->names[result]);
    av_add(to, "[");
    av_add_index(to, lower, worst);
    av_add_number(to, "]=%.9g, but should be from ", out[worst]);
    av_add_number(to, "%.9g", av_at(lower, worst) - av_at(budget, worst));
    av_add_number(to, " to %.9g: the error is ", av_at(upper, worst) + av_at(budget, worst));
    av_add_number(to, "%.3g times its error limit; ", most);
    av_add_number(to, "%.0f of ", (double)number);
    av_add_number(to, "%.0f entries are outside.", (double)lower->size);
    return 1;
}

/* Whether some results are those of a test; otherwise a sentence is added. */
static inline int av_agrees(const av_test *test, double **out, av_sentence *to) {
    for (size_t i = 0; i < av_results(test); i++)
        if (av_outside(test, i, out[i], to)) return 0;
    return 1;
}

/* Add the conventions under which wrong results are right. */
static inline void av_otherwise(const av_test *test, double **out, av_sentence *to) {
    const av_json *readings = av_get(test->json, "readings", '[');
    const char *before = " The results are right for code with ";
    for (size_t r = 0; readings && r < readings->size; r++) {
        av_test other = {test->file, test->json, &readings->items[r]};
        av_sentence ignored = {"", 0};
        int fits = av_results(test) && av_results(&other) == av_results(test);
        for (size_t i = 0; fits && i < av_results(test); i++) fits = av_result_size(&other, i) == av_result_size(test, i);
        if (!fits || !av_agrees(&other, out, &ignored)) continue;
        const av_json *conventions = av_get(&readings->items[r], "conventions", '{');
        for (size_t i = 0; i < conventions->size; i++)
            av_add_convention(to, i ? ", " : before, conventions->names[i], &conventions->items[i]);
        before = " or ";
    }
    if (strcmp(before, " or ") == 0) av_add(to, ".");
}

/* Call a function on a test. Return 0 if it passes, 1 if it fails, 2 if it does not support the call, −1 without memory. */
static inline int av_call(const av_test *test, av_function call, av_sentence *to) {
    double *out[AV_RESULTS] = {0};
    size_t results = av_results(test);
    int outcome = 0;
    for (size_t i = 0; i < results; i++)
        if (!(out[i] = (double *)calloc(av_result_size(test, i) + 1, sizeof **out))) outcome = av_wrong("There is too little memory.%s", "");
    if (!outcome) {
        int answer = call(test, out);
        if (answer && results) av_add(to, answer == AV_UNSUPPORTED ? "The function does not support this call." : "The function refuses this call.");
        if (answer && results) outcome = answer == AV_UNSUPPORTED ? 2 : 1;
        if (!answer && !results) av_add(to, "The function returns a result, but should refuse this call.");
        if (!answer) outcome = !results || !av_agrees(test, out, to);
        if (!answer && outcome) av_otherwise(test, out, to);
    }
    for (size_t i = 0; i < results; i++) free(out[i]);
    return outcome;
}

/* The entry of a list of names, as "mask,causal" or "rope_pairing=half", and its size; NULL if the name is not in it. */
static inline const char *av_entry(const char *list, const char *name, size_t *size) {
    size_t length = strlen(name);
    for (const char *at = list ? list : ""; *at; at += *size + (at[*size] == ',')) {
        *size = strcspn(at, ",");
        if (!strncmp(at, name, length) && (length == *size || (length < *size && at[length] == '='))) return at;
    }
    return NULL;
}

static inline int av_lists(const char *list, const char *name) {
    size_t size;
    return av_entry(list, name, &size) != NULL;
}

/* Whether a convention is declared with a value. */
static inline int av_declares(const av_declared *declared, const char *name, const av_json *value) {
    size_t size, from = strlen(name) + 1;
    const char *entry = av_entry(declared->conventions, name, &size);
    if (!entry || from > size) return 0;
    if (value->kind == '0') return strtod(entry + from, NULL) == value->number;
    return value->kind == '"' && strlen(value->text) == size - from && !memcmp(entry + from, value->text, size - from);
}

/* Whether a list of JSON has a string. */
static inline int av_has(const av_json *list, const char *name) {
    for (size_t i = 0; list && i < list->size; i++)
        if (list->items[i].kind == '"' && !strcmp(list->items[i].text, name)) return 1;
    return 0;
}

static inline int av_is_feature(const av_file *file, const char *name) {
    const av_json *groups = av_get(&file->json, "groups", '[');
    for (size_t g = 0; g < groups->size; g++)
        if (av_has(av_get(&groups->items[g], "features", '['), name)) return 1;
    return 0;
}

/* The first name after `last`, in alphabetical order, of a feature that a test needs and the function does not declare. */
static inline const char *av_missing(const av_test *test, const av_json *group, const char *declared, const char *last) {
    const av_json *features = av_get(group, "features", '['), *inputs = av_get(test->json, "inputs", '{');
    const char *first = NULL;
    size_t number = features ? features->size : 0;
    for (size_t i = 0; i < number + inputs->size; i++) {
        const char *name = i < number ? features->items[i].text : inputs->names[i - number];
        int is_needed = name && (i < number || av_is_feature(test->file, name)) && !av_lists(declared, name);
        if (is_needed && strcmp(name, last) > 0 && (!first || strcmp(name, first) < 0)) first = name;
    }
    return first;
}

/* Whether a test lacks no feature; otherwise a sentence is added. */
static inline int av_has_features(const av_test *test, const av_json *group, const char *declared, av_sentence *to) {
    const char *name = "";
    while ((name = av_missing(test, group, declared, name))) {
        av_add(to, to->size ? ", " : "It needs features that the function does not take: ");
        av_add(to, name);
    }
    if (to->size) av_add(to, ".");
    return !to->size;
}

/* Whether a declared convention differs from the file, the group leaves it open, and the results depend on it. */
static inline int av_is_open(const av_test *test, const av_json *group, const av_declared *declared, const char *name) {
    const av_json *usual = av_member(av_get(&test->file->json, "conventions", '{'), name);
    int differs = usual && av_lists(declared->conventions, name) && !av_declares(declared, name, usual);
    return differs && av_has(av_get(test->json, "rests_on", '['), name) && !av_member(av_get(group, "conventions", '{'), name);
}

/* Whether a reading is the one of the declared conventions, of which so many are open. */
static inline int av_is_reading(const av_test *test, const av_json *group, const av_declared *declared, const av_json *reading, size_t open) {
    const av_json *conventions = av_get(reading, "conventions", '{');
    for (size_t i = 0; i < conventions->size; i++) {
        if (!av_is_open(test, group, declared, conventions->names[i])) return 0;
        if (!av_declares(declared, conventions->names[i], &conventions->items[i])) return 0;
    }
    return conventions->size == open;
}

/* Whether a test has results for the declared conventions, which `reading` becomes; otherwise a sentence is added. */
static inline int av_choose(av_test *test, const av_json *group, const av_declared *declared, av_sentence *to) {
    const av_json *own = av_get(group, "conventions", '{'), *usual = av_get(&test->file->json, "conventions", '{');
    const av_json *readings = av_get(test->json, "readings", '[');
    for (size_t i = 0; i < own->size; i++)
        if (!av_declares(declared, own->names[i], &own->items[i]))
            av_add_convention(to, to->size ? ", " : "It is for code with ", own->names[i], &own->items[i]);
    size_t open = 0;
    for (size_t i = 0; !to->size && usual && i < usual->size; i++) open += av_is_open(test, group, declared, usual->names[i]);
    for (size_t i = 0; open && readings && i < readings->size; i++)
        if (av_is_reading(test, group, declared, &readings->items[i], open)) {
            test->reading = &readings->items[i];
            return 1;
        }
    for (size_t i = 0; open && i < usual->size; i++) {
        size_t size = 0;
        char entry[128];
        if (!av_is_open(test, group, declared, usual->names[i])) continue;
        const char *text = av_entry(declared->conventions, usual->names[i], &size);
        snprintf(entry, sizeof entry, "%.*s", (int)size, text);
        av_add(to, to->size ? ", " : "It has no result for ");
        av_add(to, entry);
    }
    if (to->size) av_add(to, ".");
    return !to->size;
}

/* Whether the file knows each name of a list. */
static inline int av_know(const av_file *file, const char *list, int is_convention) {
    for (const char *at = list ? list : ""; *at;) {
        size_t size = strcspn(at, ","), length = strcspn(at, ",=");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        const av_json *known = av_get(&file->json, is_convention ? "conventions" : "inputs", '{');
        if (!av_member(known, name) && (is_convention || !av_is_feature(file, name)))
            return av_wrong(is_convention ? "The file has no convention '%.64s'." : "The file has no feature '%.64s'.", name);
        at += size + (at[size] == ',');
    }
    return 0;
}

static inline void av_tell(const av_test *test, int outcome, const av_sentence *sentence, FILE *to) {
    const av_json *kills = outcome == 1 ? av_get(test->json, "kills", '[') : NULL;
    const char *id = av_text(test->json, "id");
    fprintf(to, "  %s %s %s", id ? id : "", outcome == 1 ? "fail" : "skip", sentence->text);
    for (size_t i = 0; kills && i < kills->size; i++)
        if (kills->items[i].kind == '"') fprintf(to, "%s%s", i ? ", " : " Known bugs that this test detects: ", kills->items[i].text);
    fprintf(to, kills && kills->size ? ".\n" : "\n");
}

/* Judge a function by the tests of an arithmetic, and count those that pass, fail and are skipped. Each test that fails
 * or is skipped is written to a stream, if there is one, with the reason, and a failing test with the known bugs that
 * fail it and no test before it: look at those of the first. Return 0, or −1 if there is no such test, or if the file
 * does not know a declared name, and av_error says so. */
static inline int av_judge(const av_file *file, const av_declared *declared, av_function call, av_counts *counts, FILE *lines) {
    const av_json *groups = av_get(&file->json, "groups", '[');
    memset(counts, 0, sizeof *counts);
    if (av_know(file, declared->features, 0) || av_know(file, declared->conventions, 1)) return -1;
    for (size_t g = 0; g < groups->size; g++) {
        const av_json *group = &groups->items[g], *tests = av_get(group, "tests", '[');
        if (strcmp(av_text(group, "format"), declared->arithmetic)) continue;
        for (size_t t = 0; t < tests->size; t++) {
            av_test test = {file, &tests->items[t], &tests->items[t]};
            av_sentence sentence = {"", 0};
            int is_asked = av_has_features(&test, group, declared->features, &sentence) && av_choose(&test, group, declared, &sentence);
            int outcome = is_asked ? av_call(&test, call, &sentence) : 2;
            if (outcome < 0) return -1;
            *(outcome == 0 ? &counts->pass : outcome == 1 ? &counts->fail : &counts->skip) += 1;
            if (outcome && lines) av_tell(&test, outcome, &sentence, lines);
        }
    }
    int is_known = counts->pass || counts->fail || counts->skip;
    return is_known ? 0 : av_wrong("The file has no tests in the format %.100s.", declared->arithmetic);
}

#endif
