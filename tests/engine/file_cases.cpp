// Snapshots as files: what is read, and what is said of a file that cannot be read.
#include "cases.h"
#include "store/snapshot.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace {

// A file with one part of eight bytes, which goes with this.
struct written_file {
    char path[32] = "/tmp/srb-snapshot-XXXXXX";

    written_file() {
        close(mkstemp(path));
        unlink(path); // write_snapshot wants to make it
        const auto part = std::make_shared<snapshot_part>(1, 8);
        memcpy(part->data.get(), "8 bytes!", 8);
        expect(write_snapshot(path, 7, 0, {5}, {part}, [] {}) == 0, "it is written");
    }

    ~written_file() { unlink(path); }
};

} // namespace

static std::string read_from(const written_file & written, const file_ptr & file,
                             const snapshot_head & head) {
    const char *         why   = nullptr;
    const snapshot_parts parts = read_parts(file.get(), head, [] {}, why);
    expect(parts.empty() || bytes_of(parts) == 8, std::string("the part's size: ") + written.path);
    return !parts.empty() ? std::string((char *) parts[0]->data.get(), 8) : why ? why : "damaged";
}

static void run_reads() {
    const written_file written;
    snapshot_head      head;
    const char *       why  = nullptr;
    file_ptr           file = open_snapshot(written.path, 7, head, why);
    expect(file != nullptr, why ? why : "there is no file");
    const long at = ftell(file.get());
    expect_equal("8 bytes!", read_from(written, file, head));

    const file_ptr only_written(fopen(written.path, "ab"));
    expect_equal(strerror(EBADF), read_from(written, only_written, head),
                 "a read that fails says nothing of the file");

    const file_ptr changed(fopen(written.path, "r+b"));
    fseek(changed.get(), at, SEEK_SET);
    fputc('9', changed.get());
    fflush(changed.get());
    fseek(file.get(), at, SEEK_SET);
    expect_equal("damaged", read_from(written, file, head), "another byte");
}

void add_file_cases(std::vector<test_case> & cases) {
    cases.push_back({"a prefix that cannot be read is not damaged", run_reads});
}
