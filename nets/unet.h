/* unet.h - UNet; see unet.c. Used by nets.c alone. */
#ifndef BATCHMARK_NETS_UNET_H
#define BATCHMARK_NETS_UNET_H

#include "nets.h"

Status unet_check(const NetConfig *config);
Value  unet_logits(Graph *g, const NetConfig *config, Value x);

#endif
