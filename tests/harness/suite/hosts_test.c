/* Host files as people write them. */
#include "harness/suite/command.h"

#include "tests/errors.h"
#include "tests/harness/folder.h"

TEST(each_host_counts_once_without_this_one) {
    struct mp_hosts hosts;
    char own[64] = "", text[400];
    gethostname(own, sizeof own - 1);
    own[strcspn(own, ".")] = '\0';
    snprintf(text, sizeof text,
             "# two racks\n\n  alpha slots=8\nbeta#the second\n%s slots=2\nalpha\nlocalhost\n"
             "%s.cluster.example max_slots=4\n%sX\r\n",
             own, own, own);
    write_file("hosts", text);
    assert_works(mp_hosts_read("hosts", "cp {from} {to}", &hosts, &error));
    snprintf(text, sizeof text, "%sX", own);
    assert_int_equal(hosts.count, 3);
    assert_string_equal(hosts.name[0], "alpha");
    assert_string_equal(hosts.name[1], "beta");
    assert_string_equal(hosts.name[2], text);
    mp_hosts_destroy(&hosts);
}

TEST_GROUP(enter_folder, leave_folder);
