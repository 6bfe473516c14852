/* SPDX-License-Identifier: Apache-2.0
 *
 * page_files: page.html, page.css and page.js, embedded into the program.
 */
#ifndef HVD_OPERATOR_PAGE_PAGE_FILES_H
#define HVD_OPERATOR_PAGE_PAGE_FILES_H

struct page_file {
    const char *path, *type;
    const char *begin, *end;
};

extern const struct page_file page_files[];
extern const int page_nfiles;

#define PAGE_FILES_MAX 8

#endif
