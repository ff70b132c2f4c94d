/* Right and wrong functions, judged: `cc -O2 example.c -lm && ./a.out FOLDER ARITHMETIC` prints how many tests each
 * passes, fails and skips, and why. */
#include "vectors.h"

static int narrow; /* whether results are float32 */

static double rounded(double x) { return narrow ? (float)x : x; }

/* Whether a mask allows an entry of a shape, with which it broadcasts. */
static int allows(const av_tensor *mask, const size_t *shape, size_t rank, size_t place) {
    size_t at = 0, step = 1;
    for (size_t axis = 1; mask && axis <= mask->rank; axis++) {
        size_t n = mask->shape[mask->rank - axis], m = shape[rank - axis];
        if (n != 1) at += step * (place % m);
        step *= n;
        place /= m;
    }
    return !mask || mask->raw[at];
}

static int fits(const av_tensor *mask, const size_t *shape, size_t rank) {
    for (size_t axis = 1; mask && axis <= mask->rank; axis++) {
        size_t n = mask->shape[mask->rank - axis];
        if (axis > rank || (n != 1 && n != shape[rank - axis])) return 0;
    }
    return !mask || !strcmp(mask->type, "BOOL");
}

static void rows(const double *scores, const av_tensor *mask, const size_t *shape, size_t rank, int masks_late, double *out) {
    size_t n = shape[rank - 1], size = 1;
    for (size_t i = 0; i < rank; i++) size *= shape[i];
    for (size_t row = 0; row < size; row += n) {
        double largest = -INFINITY, total = 0;
        for (size_t j = row; j < row + n; j++)
            if (masks_late || allows(mask, shape, rank, j)) largest = fmax(largest, scores[j]);
        for (size_t j = row; j < row + n; j++)
            if (masks_late || allows(mask, shape, rank, j)) total += exp(scores[j] - largest);
        for (size_t j = row; j < row + n; j++) out[j] = allows(mask, shape, rank, j) ? rounded(exp(scores[j] - largest) / total) : 0;
    }
}

static int softmax_of(const av_test *test, double **out, int masks_late) {
    const av_tensor *scores = av_input(test, "scores"), *mask = av_input(test, "mask");
    if (!scores || !scores->rank || !fits(mask, scores->shape, scores->rank)) return 1;
    if (scores->size != av_result_size(test, 0)) return 1;
    double *numbers = calloc(scores->size + 1, sizeof *numbers);
    if (!numbers) return 1;
    for (size_t i = 0; i < scores->size; i++) numbers[i] = av_at(scores, i);
    rows(numbers, mask, scores->shape, scores->rank, masks_late, out[0]);
    free(numbers);
    return 0;
}

/* Whether the shapes of q, k and v fit each other and the result, with fewer than 2²⁴ scores. */
static int is_attention(const av_test *test, const av_tensor *q, const av_tensor *k, const av_tensor *v) {
    if (!q || !k || !v || q->rank < 2 || k->rank != q->rank || v->rank != q->rank) return 0;
    size_t rank = q->rank, rows = q->shape[rank - 2], keys = k->shape[rank - 2];
    for (size_t axis = 0; axis + 2 < rank; axis++) {
        if (k->shape[axis] != q->shape[axis] || v->shape[axis] != q->shape[axis]) return 0;
        rows *= q->shape[axis];
    }
    if (q->shape[rank - 1] != k->shape[rank - 1] || keys != v->shape[rank - 2]) return 0;
    return rows < 1 << 24 && keys < 1 << 24 && rows * keys < 1 << 24 && rows * v->shape[rank - 1] == av_result_size(test, 0);
}

static int attention_of(const av_test *test, double **out, int scaled_by_width) {
    const av_tensor *q = av_input(test, "q"), *k = av_input(test, "k"), *v = av_input(test, "v");
    const av_tensor *mask = av_input(test, "mask");
    if (!is_attention(test, q, k, v)) return 1;
    size_t rank = q->rank, d = q->shape[rank - 1], n = q->shape[rank - 2], m = k->shape[rank - 2];
    size_t e = v->shape[rank - 1], all = n, shape[AV_RANK];
    memcpy(shape, q->shape, sizeof shape);
    shape[rank - 1] = m;
    if (!fits(mask, shape, rank)) return 1;
    for (size_t i = 0; i + 2 < rank; i++) all *= shape[i];
    double *scores = calloc(all * m + 1, sizeof *scores), *weights = calloc(all * m + 1, sizeof *weights);
    if (!scores || !weights) return 1;
    double scale = d == 0 ? 1 : scaled_by_width ? (double)d : sqrt((double)d);
    for (size_t row = 0; row < all; row++)
        for (size_t j = 0; j < m; j++) {
            double sum = 0;
            for (size_t c = 0; c < d; c++) sum += av_at(q, row * d + c) * av_at(k, (row / n * m + j) * d + c);
            scores[row * m + j] = sum / scale;
        }
    rows(scores, mask, shape, rank, 0, weights);
    for (size_t row = 0; row < all; row++)
        for (size_t c = 0; c < e; c++) {
            double sum = 0;
            for (size_t j = 0; j < m; j++)
                if (weights[row * m + j] != 0) sum += weights[row * m + j] * av_at(v, (row / n * m + j) * e + c);
            out[0][row * e + c] = rounded(sum);
        }
    free(scores);
    free(weights);
    return 0;
}

/* Rotate the channels 2i and 2i + 1 of each row together, or i and i + d/2. */
static int rotated(const av_test *test, double **out, int by_halves) {
    const av_tensor *x = av_input(test, "x");
    double start = av_number(test, "start_pos", 0);
    if (!x || x->rank < 2 || start < 0) return 1;
    size_t d = x->shape[x->rank - 1], n = x->shape[x->rank - 2];
    if (d % 2) return AV_UNSUPPORTED;
    if (x->size != av_result_size(test, 0)) return 1;
    for (size_t row = 0; d && row < x->size / d; row++)
        for (size_t i = 0; i < d / 2; i++) {
            double angle = (start + (double)(row % n)) * pow(10000, -(double)i / (double)(d / 2));
            size_t a = row * d + (by_halves ? i : 2 * i), b = by_halves ? a + d / 2 : a + 1;
            out[0][a] = rounded(av_at(x, a) * cos(angle) - av_at(x, b) * sin(angle));
            out[0][b] = rounded(av_at(x, b) * cos(angle) + av_at(x, a) * sin(angle));
        }
    return 0;
}

static int softmax(const av_test *test, double **out) { return softmax_of(test, out, 0); }
static int softmax_masked_late(const av_test *test, double **out) { return softmax_of(test, out, 1); }
static int attention(const av_test *test, double **out) { return attention_of(test, out, 0); }
static int attention_scaled_by_width(const av_test *test, double **out) { return attention_of(test, out, 1); }

static int rope(const av_test *test, double **out) { return rotated(test, out, 0); }
static int rope_of_halves(const av_test *test, double **out) { return rotated(test, out, 1); }

static const struct { const char *operation, *name, *features, *conventions; av_function call; } rows_judged[] = {
    {"hard_masked_softmax", "right", "mask", "", softmax},
    {"hard_masked_softmax", "wrong", "mask", "", softmax_masked_late},
    {"scaled_dot_product_attention", "right", "mask", "", attention},
    {"scaled_dot_product_attention", "wrong", "mask", "", attention_scaled_by_width},
    {"rope", "right", "", "", rope},
    {"rope", "wrong", "", "", rope_of_halves},
    {"rope", "half", "", "rope_pairing=half", rope_of_halves},
};

int main(int count, char **given) {
    int wrong = 0;
    if (count != 3) return 2;
    narrow = !strcmp(given[2], "float32");
    for (size_t i = 0; i < sizeof rows_judged / sizeof *rows_judged; i++) {
        char path[4096];
        av_counts counts;
        av_declared declared = {given[2], rows_judged[i].features, rows_judged[i].conventions};
        snprintf(path, sizeof path, "%s/%s.json", given[1], rows_judged[i].operation);
        av_file *file = av_open(path);
        if (file && !av_judge(file, &declared, rows_judged[i].call, &counts, NULL)) {
            const char *form = "%s %s: %d pass, %d fail, %d skip\n";
            printf(form, rows_judged[i].operation, rows_judged[i].name, counts.pass, counts.fail, counts.skip);
            av_judge(file, &declared, rows_judged[i].call, &counts, stdout);
        } else {
            fprintf(stderr, "%s\n", av_error());
            wrong = 2;
        }
        av_close(file);
    }
    return wrong;
}
