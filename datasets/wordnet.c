/* wordnet.c - reads the glosses of WordNet's data files, as wndb(5WN) describes them.
 *
 * A line is a synset: "offset lex_filenum ss_type ... | gloss". The offset is the line's own place in the file, which
 * tells when bytes are missing. Lines that begin with two spaces are the licence. */
#include "source.h"
#include "text_source.h"

#include <inttypes.h>
#include <string.h>

const char *wordnet_file_name(int32_t number)
{
    /* lexnames(5WN): 3 to 28 are nouns */
    static const char *const nouns[] = {
        "noun.Tops", "noun.act", "noun.animal", "noun.artifact", "noun.attribute", "noun.body", "noun.cognition",
        "noun.communication", "noun.event", "noun.feeling", "noun.food", "noun.group", "noun.location", "noun.motive",
        "noun.object", "noun.person", "noun.phenomenon", "noun.plant", "noun.possession", "noun.process",
        "noun.quantity", "noun.relation", "noun.shape", "noun.state", "noun.substance", "noun.time",
    };
    return number >= 3 && number < 3 + (int32_t)COUNT_OF(nouns) ? nouns[number - 3] : "other";
}

/* `digits` decimal digits and a space; -1 where it is something else. */
static int64_t read_number(const char *p, size_t left, size_t digits)
{
    int64_t value = 0;
    if (left <= digits || p[digits] != ' ')
        return -1;
    for (size_t i = 0; i < digits; i++) {
        if (p[i] < '0' || p[i] > '9')
            return -1;
        value = 10 * value + (p[i] - '0');
    }
    return value;
}

static Status read_line(const FileBytes *file, size_t at, size_t length, int64_t number, Documents *out)
{
    const char *line = file->bytes + at, *shown = dataset_shown_path(file->path);
    int64_t offset = read_number(line, length, 8);
    if (offset != (int64_t)at)
        return status_error(STATUS_INPUT, "%s: line %" PRId64 ": synset offset is %.8s, the line is at byte %zu", shown,
                            number, length < 8 ? "cut off" : line, at);
    int64_t lex = read_number(line + 9, length - 9, 2);
    if (lex < 0 || lex >= WORDNET_FILES)
        return status_error(STATUS_INPUT, "%s: line %" PRId64 ": lexicographer file %.2s, expected 00..%d", shown,
                            number, length < 11 ? "?" : line + 9, WORDNET_FILES - 1);
    const char *bar = memchr(line, '|', length);
    if (!bar)
        return status_error(STATUS_INPUT, "%s: line %" PRId64 ": no '|' before a gloss", shown, number);
    TRY(documents_add(out, bar + 1, (size_t)(line + length - bar) - 1));
    return documents_end(out, (int32_t)lex);
}

Status wordnet_read(const FileBytes *file, Documents *out)
{
    const char *shown = dataset_shown_path(file->path);
    int64_t count = out->count, number = 0;
    for (size_t at = 0; at < file->length;) {
        const char *line = file->bytes + at, *end = memchr(line, '\n', file->length - at);
        number++;
        if (!end)
            return status_error(STATUS_INPUT, "%s: line %" PRId64 " has no end; the file is cut", shown, number);
        size_t length = (size_t)(end - line);
        if (length < 2 || memcmp(line, "  ", 2) != 0)
            TRY(read_line(file, at, length, number, out));
        at += length + 1;
    }
    return out->count > count ? status_ok() : status_error(STATUS_INPUT, "%s: holds no synset", shown);
}
