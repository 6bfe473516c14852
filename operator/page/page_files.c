/* SPDX-License-Identifier: Apache-2.0
 *
 * page_files: see page_files.h. The assembler's .incbin embeds the files. -MMD does not see that,
 * so the Makefile lists them as prerequisites of page_files.o.
 */
#include "operator/page/page_files.h"

#define FILE_IN(name)                                                                              \
    __asm__(".pushsection .rodata\n"                                                               \
            "hvd_page_" #name "_begin:\n"                                                          \
            ".incbin \"operator/page/page." #name "\"\n"                                           \
            "hvd_page_" #name "_end:\n"                                                            \
            ".byte 0\n"                                                                            \
            ".popsection\n");                                                                      \
    extern const char hvd_page_##name##_begin[], hvd_page_##name##_end[]

FILE_IN(html);
FILE_IN(css);
FILE_IN(js);

const struct page_file page_files[] = {
    {"/", "text/html; charset=utf-8", hvd_page_html_begin, hvd_page_html_end},
    {"/page.css", "text/css; charset=utf-8", hvd_page_css_begin, hvd_page_css_end},
    {"/page.js", "text/javascript; charset=utf-8", hvd_page_js_begin, hvd_page_js_end},
};
const int page_nfiles = sizeof(page_files) / sizeof(page_files[0]);
_Static_assert(sizeof(page_files) / sizeof(page_files[0]) <= PAGE_FILES_MAX, "PAGE_FILES_MAX");
