/* kernel_names.c - the bodies of kernel_names.h: patterns of names, and how a demangled name is made short. */
#include "kernel_names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Of the C++ runtime ("Itanium C++ ABI", section 3.4), which every program with .cu files has. NULL: not a mangled name, or no
 * memory. The result is malloc's. */
extern char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);

/* ---- tensor cores ----
 * # stands for a digit; case does not matter. */
static const char *const tensor_patterns[] = {
    "tensorop",                                      /* CUTLASS: cutlass_80_tensorop_bf16_s16816gemm_... */
    "_tensor#",                                      /* XMMA: sm80_xmma_fprop_..._tensor16x8x16_... */
    "s884", "h884", "s1688", "h1688", "i8816",       /* m8n8k4, m16n8k8 of Volta and Turing: volta_s884, turing_fp16_s1688gemm_... */
    "s16816", "h16816", "i16832", "s161616", "h161616", /* m16n8k16: ampere_bf16_s16816gemm_... */
    "hmma", "imma_", "gmma", "tcgen05",              /* by instruction; gmma: Hopper's wgmma and hgmma, hmma: also utchmma */
    "xmma",                                          /* sm90_xmma_gemm_...; see the exceptions */
    "nvjet",                                         /* cuBLASLt from CUDA 12.8 on: nvjet_hsh_128x256_64x4_... */
    "flash_fprop", "flash_bprop", "fmha",            /* attention: cudnn_generated_fort_native_sdpa_sm90_flash_fprop_... */
};
/* Names of the same families whose multiply-adds are scalar. */
static const char *const scalar_patterns[] = { "simt", "ffma" };

static bool matches_here(const char *name, const char *pattern)
{
    for (; *pattern; name++, pattern++) {
        const int c = tolower((unsigned char)*name);
        if (*pattern == '#' ? !isdigit(c) : c != *pattern)
            return false;
    }
    return true;
}

static bool holds_any(const char *name, const char *const *patterns, size_t count)
{
    for (; *name; name++)
        for (size_t i = 0; i < count; i++)
            if (matches_here(name, patterns[i]))
                return true;
    return false;
}

bool kernel_uses_tensor_cores(const char *name)
{
    return holds_any(name, tensor_patterns, sizeof tensor_patterns / sizeof *tensor_patterns)
        && !holds_any(name, scalar_patterns, sizeof scalar_patterns / sizeof *scalar_patterns);
}

/* ---- short names ---- */

/* Bytes of what begins here and says nothing, 0 if it does: "(int)4" is 4, "(bool)1" is 1. */
static size_t noise_at(const char *text)
{
    static const char *const noise[] = { "(anonymous namespace)::", "(int)", "(bool)", "(unsigned int)", "(long)", "(unsigned long)" };
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++)
        if (!strncmp(text, noise[i], strlen(noise[i])))
            return strlen(noise[i]);
    return 0;
}

/* Where the name begins: after the return type, which only templates have and which ends at the last space outside brackets. */
static const char *name_start(const char *text)
{
    const char *start = text;
    int depth = 0;
    for (const char *c = text; *c; c++) {
        size_t noise = noise_at(c);
        if (noise) {
            c += noise - 1;
            continue;
        }
        if (*c == '(' && depth == 0)
            break;
        depth += (*c == '<' || *c == '(') - (*c == '>' || *c == ')');
        if (*c == ' ' && depth == 0)
            start = c + 1;
    }
    return start;
}

const char *kernel_short_name(const char *mangled, char *text, size_t size)
{
    int    status = 0;
    size_t at = 0;
    int    depth = 0;
    char  *whole = __cxa_demangle(mangled, NULL, NULL, &status);
    for (const char *c = name_start(whole ? whole : mangled); *c && at + 1 < size; c++) {
        size_t noise = noise_at(c);
        if (noise) {
            c += noise - 1;
            continue;
        }
        if (*c == '(' && depth == 0) /* the parameters */
            break;
        depth += (*c == '<' || *c == '(') - (*c == '>' || *c == ')');
        text[at++] = *c;
    }
    text[at] = '\0';
    free(whole);
    return text;
}
