/* text_mask.c - which tokens the masked language model has to predict, and what it sees in their place.
 *
 * Devlin et al. 2018, 3.1: 15 % of the tokens; 80 % of these become [MASK], 10 % a random one, 10 % stay. Exactly k of
 * n tokens are chosen, each set of k as likely as any other, in the order of rows: selection sampling, Knuth vol. 2,
 * 3.4.2 S. One block of random numbers a token: for the choice, the kind of change, the random token. */
#include "text_source.h"

int64_t text_targets(int64_t n)
{
    int64_t k = (15 * n + 50) / 100;
    return k > 0 ? k : n > 0;
}

/* round(0.8 2^32) and round(0.9 2^32) */
static const uint32_t mask_below = 3435973837u, random_below = 3865470566u;

static int32_t changed(const Vocab *vocab, const RngBlock *r, int32_t id)
{
    if (r->word[1] < mask_below)
        return vocab->mask;
    if (r->word[1] < random_below)
        return vocab->ordinary[(uint64_t)r->word[2] * (uint64_t)vocab->ordinaries >> 32];
    return id;
}

int64_t text_mask(const Vocab *vocab, uint64_t seed, uint64_t stream, int64_t counter, int64_t most, int32_t *tokens,
                  int64_t length, int32_t *labels)
{
    int64_t n = 0, seen = 0, chosen = 0;
    for (int64_t i = 0; i < length; i++) {
        labels[i] = -1;
        n += tokens[i] != vocab->cls && tokens[i] != vocab->sep;
    }
    int64_t k = text_targets(n), last = k < most ? k : most;
    for (int64_t i = 0; i < length && chosen < last; i++) {
        if (tokens[i] == vocab->cls || tokens[i] == vocab->sep)
            continue;
        RngBlock r = rng_block(seed, stream, (uint64_t)counter * TEXT_SEQ_MAX + (uint64_t)i);
        if ((int64_t)((uint64_t)r.word[0] * (uint64_t)(n - seen++) >> 32) >= k - chosen)
            continue;
        labels[i] = tokens[i];
        tokens[i] = changed(vocab, &r, tokens[i]);
        chosen++;
    }
    return chosen;
}
