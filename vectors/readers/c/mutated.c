/* Judge a function by mutated files: `cc -g -O1 -fsanitize=address,undefined mutated.c -lm && ./a.out FILE.json TENSORS NUMBER SEED`.
 * A sanitiser ends the program at the first error of memory. It prints how many files were refused, and how many read. */
#include "vectors.h"

static uint64_t state;

static size_t below(size_t limit) { /* xorshift64 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (size_t)(state % limit) : 0;
}

/* A copy of some bytes with up to four of them changed, removed, or repeated from elsewhere. The copy has exactly the
 * size that it states, so that a sanitiser sees each byte that is read beyond it. */
static char *mutated(const char *bytes, size_t *size) {
    static const char telling[] = "{}[]\",:\\/0129-e. tfn\0\xff";
    char *work = malloc(*size + 64);
    memcpy(work, bytes, *size);
    for (size_t change = below(4) + 1; change; change--) {
        size_t at = below(*size), from = below(*size), span = below(48);
        if (span > *size - at) span = *size - at;
        if (span > *size - from) span = *size - from;
        switch (below(6)) {
        case 0: if (*size) work[at] = telling[below(sizeof telling)]; break;
        case 1: if (*size) work[at] ^= (char)(1u << below(8)); break;
        case 2: memmove(work + at, work + at + span, *size - at - span); *size -= span; break;
        case 3: memmove(work + at, work + from, span); break;
        case 4: if (!below(8)) *size = at; break; /* cut off */
        default:
            for (size_t i = at; i < *size && i < at + 3; i++)
                if (work[i] >= '0' && work[i] <= '9') work[i] = (char)('0' + below(10));
        }
    }
    char *exact = malloc(*size ? *size : 1);
    memcpy(exact, work, *size);
    free(work);
    return exact;
}

/* Read every number of every input, and fill each result with their sum. */
static int sum_of_inputs(const av_test *test, double **out) {
    double sum = 0;
    const av_json *inputs = av_get(test->json, "inputs", '{');
    for (size_t i = 0; i < inputs->size; i++) {
        const av_tensor *input = av_input(test, inputs->names[i]);
        sum += av_number(test, inputs->names[i], 0) + av_side(test, inputs->names[i], 1, 0);
        for (size_t j = 0; input && j < input->size; j++) sum += av_at(input, j);
    }
    for (size_t i = 0; i < av_results(test); i++)
        for (size_t j = 0; j < av_result_size(test, i); j++) out[i][j] = sum;
    return 0;
}

int main(int count, char **given) {
    if (count != 5) return 2;
    size_t sizes[2], refused = 0, number = strtoul(given[3], NULL, 10);
    char *bytes[2] = {av_bytes(given[1], &sizes[0]), av_bytes(given[2], &sizes[1])};
    if (!bytes[0] || !bytes[1]) return 2;
    state = 0x9e3779b97f4a7c15u ^ strtoull(given[4], NULL, 10);
    for (size_t i = 0; i < number; i++) {
        size_t text = sizes[0], raw = sizes[1];
        av_file *file = calloc(1, sizeof *file);
        size_t which = below(3); /* mutate the first, the second, or both */
        file->text = which != 1 ? mutated(bytes[0], &text) : memcpy(malloc(text), bytes[0], text);
        file->raw = which != 0 ? mutated(bytes[1], &raw) : memcpy(malloc(raw), bytes[1], raw);
        av_counts counts;
        av_declared declared = {"float64", "", ""}, other = {"float64", "positions,sections", "rope_pairing=half"};
        int wrong = av_read_json(file, text) || av_read_tensors(file, raw) || av_check(file);
        wrong = wrong || av_judge(file, &declared, sum_of_inputs, &counts, NULL);
        if (!wrong) av_judge(file, &other, sum_of_inputs, &counts, NULL); /* its names are known to rope alone */
        refused += wrong != 0;
        av_close(file);
    }
    free(bytes[0]);
    free(bytes[1]);
    printf("%zu refused, %zu read\n", refused, number - refused);
    return 0;
}
