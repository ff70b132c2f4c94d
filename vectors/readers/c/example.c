/* A right and a wrong softmax and attention, judged: `cc -O2 example.c -lm && ./a.out FOLDER FORMAT` prints how many tests each fails. */
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
    for (size_t axis = 1; mask && axis <= mask->rank; axis++)
        if (mask->shape[mask->rank - axis] != 1 && mask->shape[mask->rank - axis] != shape[rank - axis]) return 0;
    return 1;
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
    if (!fits(mask, scores->shape, scores->rank)) return 1;
    double *numbers = calloc(scores->size + 1, sizeof *numbers);
    for (size_t i = 0; i < scores->size; i++) numbers[i] = av_at(scores, i);
    rows(numbers, mask, scores->shape, scores->rank, masks_late, out[0]);
    return 0;
}

static int attention_of(const av_test *test, double **out, int scaled_by_width) {
    const av_tensor *q = av_input(test, "q"), *k = av_input(test, "k"), *v = av_input(test, "v"), *mask = av_input(test, "mask");
    size_t rank = q->rank, d = q->shape[rank - 1], n = q->shape[rank - 2], m = k->shape[rank - 2], e = v->shape[rank - 1], shape[16];
    memcpy(shape, q->shape, sizeof shape);
    shape[rank - 1] = m;
    if (d != k->shape[rank - 1] || m != v->shape[rank - 2] || !fits(mask, shape, rank)) return 1;
    size_t all = n;
    for (size_t i = 0; i + 2 < rank; i++) all *= shape[i];
    double scale = d == 0 ? 1 : scaled_by_width ? (double)d : sqrt((double)d), *scores = calloc(all * m + 1, sizeof *scores);
    double *weights = calloc(all * m + 1, sizeof *weights);
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
    return 0;
}

static int softmax(const av_test *test, double **out) { return softmax_of(test, out, 0); }
static int softmax_masked_late(const av_test *test, double **out) { return softmax_of(test, out, 1); }
static int attention(const av_test *test, double **out) { return attention_of(test, out, 0); }
static int attention_scaled_by_width(const av_test *test, double **out) { return attention_of(test, out, 1); }

static void judge(char **given, const char *operation, const char *name, int (*call)(const av_test *, double **)) {
    char path[4096];
    int failed, number;
    snprintf(path, sizeof path, "%s/%s.json", given[1], operation);
    av_judge(av_open(path), given[2], call, &failed, &number, NULL);
    printf("%s %s fails %d of %d\n", operation, name, failed, number);
}

int main(int count, char **given) {
    if (count != 3) return 2;
    narrow = !strcmp(given[2], "float32");
    judge(given, "hard_masked_softmax", "right", softmax);
    judge(given, "hard_masked_softmax", "wrong", softmax_masked_late);
    judge(given, "scaled_dot_product_attention", "right", attention);
    judge(given, "scaled_dot_product_attention", "wrong", attention_scaled_by_width);
    return 0;
}
