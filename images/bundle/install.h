/* SPDX-License-Identifier: Apache-2.0
 *
 * install: copies a bundle's folders, for an init container. What is already there is replaced, so
 * that it may be done again after it was killed.
 */
#ifndef HVD_IMAGES_BUNDLE_INSTALL_H
#define HVD_IMAGES_BUNDLE_INSTALL_H

#include <stdbool.h>
#include <stddef.h>

/* From the folder of a bundle into a folder that is there. Negative errno, and what went wrong with
 * which file in problem. */
int install(const char *from, const char *to, char *problem, size_t size);

#endif
