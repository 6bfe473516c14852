/* SPDX-License-Identifier: Apache-2.0
 *
 * install: copies a bundle's folders, for an init container. Existing files are replaced, so that
 * it can be repeated after it was killed.
 */
#ifndef HVD_IMAGES_BUNDLE_INSTALL_H
#define HVD_IMAGES_BUNDLE_INSTALL_H

#include <stdbool.h>
#include <stddef.h>

/* Copies from the folder of a bundle into an existing folder. Returns 0, or a negative errno with
 * the failed action and file in problem. */
int install(const char *from, const char *to, char *problem, size_t size);

#endif
