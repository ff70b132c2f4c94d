/* Runs attnspec's certified vectors on ggml's operators on the CPU: softmax, flash attention, and RoPE.
 *
 *     cc -O2 -I INCLUDE -I ../../vectors/readers/c test_vectors.c -L LIB -lggml-base -lggml-cpu -lm -o test_vectors
 *     ./test_vectors ../../vectors/data
 *
 * Each line has the counts of an operator; below it are the tests that it fails or does not take, with the reason. The
 * exit status is the number of operators that fail a test. An arena holds the tensors of one call. */
#include <ggml-cpu.h>
#include <ggml.h>

#include "vectors.h"

#define ARENA ((size_t)64 << 20)

static struct ggml_context *arena(void) {
    struct ggml_init_params given = {ARENA, NULL, false};
    return ggml_init(given);
}

/* A copy of an array with at most four axes: its last axis comes first in ggml. */
static struct ggml_tensor *tensor(struct ggml_context *in, const av_tensor *x, const int64_t *sizes) {
    struct ggml_tensor *made = ggml_new_tensor(in, GGML_TYPE_F32, 4, sizes);
    float *numbers = ggml_get_data(made);
    for (size_t i = 0; i < x->size; i++) numbers[i] = (float)av_at(x, i);
    return made;
}

static void compute(struct ggml_context *in, struct ggml_tensor *last, double *out) {
    struct ggml_cgraph *graph = ggml_new_graph(in);
    ggml_build_forward_expand(graph, last);
    ggml_graph_compute_with_ctx(in, graph, 1);
    const float *numbers = ggml_get_data(last);
    for (int64_t i = 0; i < ggml_nelements(last); i++) out[i] = numbers[i];
}

/* Whether a mask broadcasts with a shape. */
static int fits(const av_tensor *mask, const size_t *shape, size_t rank) {
    for (size_t axis = 1; mask && axis <= mask->rank; axis++) {
        size_t n = mask->shape[mask->rank - axis];
        if (axis > rank || (n != 1 && n != shape[rank - axis])) return 0;
    }
    return !mask || !strcmp(mask->type, "BOOL");
}

/* The number that ggml adds to a score: 0 for a visible key, and −∞ for a masked one. */
static float added(const av_tensor *mask, const size_t *shape, size_t rank, size_t place) {
    size_t at = 0, step = 1;
    for (size_t axis = 1; axis <= mask->rank; axis++) {
        size_t n = mask->shape[mask->rank - axis], m = shape[rank - axis];
        if (n != 1) at += step * (place % m);
        step *= n;
        place /= m;
    }
    return mask->raw[at] ? 0.0f : -INFINITY;
}

/* The product of the axes before the last `inner` ones. */
static size_t leading(const av_tensor *x, size_t inner) {
    size_t product = 1;
    for (size_t axis = 0; axis + inner < x->rank; axis++) product *= x->shape[axis];
    return product;
}

static int softmax(const av_test *test, double **out) {
    const av_tensor *scores = av_input(test, "scores"), *mask = av_input(test, "mask");
    if (!scores || !scores->rank || !fits(mask, scores->shape, scores->rank)) return 1;
    if (!scores->size) return AV_UNSUPPORTED;
    struct ggml_context *in = arena();
    int64_t sizes[4] = {(int64_t)scores->shape[scores->rank - 1], (int64_t)leading(scores, 1), 1, 1};
    struct ggml_tensor *numbers = mask ? ggml_new_tensor(in, GGML_TYPE_F32, 4, sizes) : NULL;
    for (size_t i = 0; mask && i < scores->size; i++)
        ((float *)ggml_get_data(numbers))[i] = added(mask, scores->shape, scores->rank, i);
    compute(in, ggml_soft_max_ext(in, tensor(in, scores, sizes), numbers, 1.0f, 0.0f), out[0]);
    ggml_free(in);
    return 0;
}

/* Flash attention of q (…, heads, n_q, d), or without an axis of heads. */
static int attention_of(const av_test *test, double **out, size_t has_heads) {
    const av_tensor *q = av_input(test, "q"), *k = av_input(test, "k"), *v = av_input(test, "v");
    const av_tensor *mask = av_input(test, "mask");
    if (!q || !k || !v || q->rank < 2 + has_heads || k->rank != q->rank || v->rank != q->rank) return 1;
    size_t rank = q->rank, d = q->shape[rank - 1], n = q->shape[rank - 2], m = k->shape[rank - 2];
    size_t e = v->shape[rank - 1], shape[AV_RANK];
    memcpy(shape, q->shape, sizeof shape);
    shape[rank - 1] = m;
    if (d != k->shape[rank - 1] || m != v->shape[rank - 2] || !fits(mask, shape, rank)) return 1;
    if (!q->size || !k->size || !v->size) return AV_UNSUPPORTED;
    size_t heads = has_heads ? q->shape[rank - 3] : 1, kv_heads = has_heads ? k->shape[rank - 3] : 1;
    if (heads % kv_heads || leading(k, 2 + has_heads) != leading(q, 2 + has_heads)) return 1;
    int64_t batch = (int64_t)leading(q, 2 + has_heads);
    int64_t of_q[4] = {(int64_t)d, (int64_t)n, (int64_t)heads, batch};
    int64_t of_k[4] = {(int64_t)d, (int64_t)m, (int64_t)kv_heads, batch};
    int64_t of_v[4] = {(int64_t)e, (int64_t)m, (int64_t)kv_heads, batch};
    int64_t of_mask[4] = {(int64_t)m, (int64_t)n, (int64_t)heads, batch};
    struct ggml_context *in = arena();
    struct ggml_tensor *numbers = mask ? ggml_new_tensor(in, GGML_TYPE_F16, 4, of_mask) : NULL;
    for (size_t i = 0; mask && i < (size_t)batch * heads * n * m; i++)
        ((ggml_fp16_t *)ggml_get_data(numbers))[i] = ggml_fp32_to_fp16(added(mask, shape, rank, i));
    struct ggml_tensor *last = ggml_flash_attn_ext(in, tensor(in, q, of_q), tensor(in, k, of_k), tensor(in, v, of_v),
                                                   numbers, 1.0f / sqrtf((float)d), 0.0f, 0.0f);
    double *turned = calloc((size_t)ggml_nelements(last), sizeof *turned);
    compute(in, last, turned); /* its rows are (batch, n, heads, e) */
    for (size_t i = 0; i < (size_t)ggml_nelements(last); i++) {
        size_t c = i % e, h = i / e % heads, row = i / (e * heads) % n, b = i / (e * heads * n);
        out[0][((b * heads + h) * n + row) * e + c] = turned[i];
    }
    free(turned);
    ggml_free(in);
    return 0;
}

static int attention(const av_test *test, double **out) { return attention_of(test, out, 0); }
static int grouped_attention(const av_test *test, double **out) { return attention_of(test, out, 1); }

/* RoPE of x (…, seq_len, d): ggml rotates adjacent pairs in mode 0, and halves in mode 2. */
static int rope_of(const av_test *test, double **out, int mode) {
    const av_tensor *x = av_input(test, "x");
    double start = av_number(test, "start_pos", 0);
    if (!x || x->rank < 2 || start < 0) return 1;
    size_t d = x->shape[x->rank - 1], n = x->shape[x->rank - 2];
    if (!x->size || d % 2) return AV_UNSUPPORTED;
    struct ggml_context *in = arena();
    int64_t sizes[4] = {(int64_t)d, 1, (int64_t)n, (int64_t)leading(x, 2)};
    struct ggml_tensor *positions = ggml_new_tensor_1d(in, GGML_TYPE_I32, (int64_t)n);
    for (size_t row = 0; row < n; row++) ((int32_t *)ggml_get_data(positions))[row] = (int32_t)start + (int32_t)row;
    struct ggml_tensor *of_x = tensor(in, x, sizes);
    compute(in, ggml_rope_ext(in, of_x, positions, NULL, (int)d, mode, 0, 10000, 1, 0, 1, 32, 1), out[0]);
    ggml_free(in);
    return 0;
}

static int rope(const av_test *test, double **out) { return rope_of(test, out, 0); }
static int rope_of_halves(const av_test *test, double **out) { return rope_of(test, out, 2); }

static const struct { const char *name, *operation, *features, *conventions; av_function call; } rows[] = {
    {"ggml_soft_max_ext", "hard_masked_softmax", "mask", "dead_rows=nan", softmax},
    {"ggml_flash_attn_ext", "scaled_dot_product_attention", "mask", "", attention},
    {"ggml_flash_attn_ext", "grouped_query_attention", "mask", "", grouped_attention},
    {"ggml_rope_ext, mode 0", "rope", "", "", rope},
    {"ggml_rope_ext, mode 2", "rope", "", "rope_pairing=half", rope_of_halves},
};

int main(int count, char **given) {
    int wrong = 0;
    if (count != 2) return 127;
    ggml_cpu_init();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[4096];
        av_counts counts;
        av_declared declared = {"float32", rows[i].features, rows[i].conventions};
        snprintf(path, sizeof path, "%s/%s.json", given[1], rows[i].operation);
        av_file *file = av_open(path);
        if (!file || av_judge(file, &declared, rows[i].call, &counts, NULL)) return puts(av_error()), 127;
        const char *form = "%s, %s: %d pass, %d fail, %d skip\n";
        printf(form, rows[i].name, rows[i].operation, counts.pass, counts.fail, counts.skip);
        av_judge(file, &declared, rows[i].call, &counts, stdout);
        wrong += counts.fail > 0;
        av_close(file);
    }
    return wrong;
}
