#include "attention.h"
size_t attention_amx_scratch(int64_t rows, int64_t size, bool gradient){ return attention_vec_scratch(rows,size,gradient);}
void attention_amx_forward(const AttentionHead *h, void *scratch){attention_vec_forward(h,scratch);}
void attention_amx_backward(const AttentionHead *h, void *scratch){attention_vec_backward(h,scratch);}
