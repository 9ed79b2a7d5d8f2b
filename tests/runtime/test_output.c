/* test_output.c: output_file.c gives the reason of a write that failed, whichever write of the file it
 * was. */
#include "base/output_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

/* stdio's buffer is written on the way, at the end, or both: after the first of them nothing may be left
 * for the flush to write. */
static void full_device(void **unused)
{
    (void)unused;
    static const size_t sizes[] = {1, 4095, 4096, 8192, 100000, 1 << 20};
    static char bytes[1 << 20];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        OutputFile o;
        assert_int_equal(output_open(&o, "/dev/full"), 0);
        fwrite(bytes, 1, sizes[i], o.file);
        errno = 0;
        assert_int_equal(output_close(&o, true), -1);
        assert_int_equal(errno, ENOSPC);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(full_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
