#include "base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::file_test {

namespace fs = std::filesystem;
using namespace rackrail;

TEST_CASE("a file reads back as it was written, zero bytes too") {
  const test::TemporaryDirectory folder;
  const std::string content("first\r\n\0last", 12);
  write_file_atomically(folder.path() / "file", content);
  CHECK(read_file(folder.path() / "file") == content);
}

TEST_CASE("an empty file is read as an empty text") {
  const test::TemporaryDirectory folder;
  write_file_atomically(folder.path() / "empty", "");
  CHECK(read_file(folder.path() / "empty").empty());
}

TEST_CASE("a file without an end is refused before it fills the memory") {
  CHECK_THROWS_WITH(read_file("/dev/zero", 1_MiB), Catch::Contains("more than 1.00 MiB"));
  const test::TemporaryDirectory folder;
  write_file_atomically(folder.path() / "five", "12345");
  CHECK(read_file(folder.path() / "five", Bytes(5)) == "12345");
  CHECK_THROWS_WITH(read_file(folder.path() / "five", Bytes(4)), Catch::Contains("more than 4 B"));
}

TEST_CASE("writing makes missing folders and replaces the file, and leaves nothing else") {
  const test::TemporaryDirectory folder;
  const fs::path file = folder.path() / "a" / "b" / "file";
  write_file_atomically(file, "old");
  write_file_atomically(file, "new");
  CHECK(read_file(file) == "new");
  CHECK(std::distance(fs::directory_iterator(file.parent_path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a file in two parts is there once it is published, and not at all if it never is") {
  const test::TemporaryDirectory folder;
  const fs::path file = folder.path() / "below" / "file";
  {
    StagedFile staged(file, "never");
    const StagedFile moved(std::move(staged));
    CHECK_FALSE(fs::exists(file));
  }
  CHECK(fs::is_empty(file.parent_path()));
  StagedFile(file, "first").publish();
  StagedFile staged(file, "second");
  CHECK(read_file(file) == "first");
  staged.publish();
  CHECK(read_file(file) == "second");
  CHECK(std::distance(fs::directory_iterator(file.parent_path()), fs::directory_iterator()) == 1);
  CHECK_THROWS_AS(staged.publish(), ConfigError);
}

TEST_CASE("what cannot be read is named with its reason") {
  const test::TemporaryDirectory folder;
  CHECK_THROWS_WITH(read_file(folder.path() / "none"),
                    Catch::Contains("none") && Catch::Contains("No such file"));
  CHECK_THROWS_WITH(read_file(folder.path()), Catch::Contains("found a folder"));
}

TEST_CASE("a write that fails leaves the old content and no temporary file") {
  const test::TemporaryDirectory folder;
  fs::create_directory(folder.path() / "taken");
  write_file_atomically(folder.path() / "taken" / "inside", "x");
  // A folder that is not empty cannot be replaced by a file.
  CHECK_THROWS_AS(write_file_atomically(folder.path() / "taken", "y"), ConfigError);
  CHECK(read_file(folder.path() / "taken" / "inside") == "x");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);

  // A file cannot be a folder.
  write_file_atomically(folder.path() / "file", "z");
  CHECK_THROWS_AS(write_file_atomically(folder.path() / "file" / "below", "y"), ConfigError);
}

TEST_CASE("a link stays, and the file that it points to is replaced") {
  const test::TemporaryDirectory folder;
  write_file_atomically(folder.path() / "file", "old");
  fs::create_symlink("file", folder.path() / "link");
  write_file_atomically(folder.path() / "link", "new");
  CHECK(fs::is_symlink(folder.path() / "link"));
  CHECK(read_file(folder.path() / "file") == "new");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 2);
}

TEST_CASE("a pipe is written to and stays a pipe") {
  const test::TemporaryDirectory folder;
  const fs::path pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);  // so that nobody waits
  REQUIRE(reader >= 0);
  write_file_atomically(pipe, "text");
  CHECK(fs::is_fifo(pipe));
  std::array<char, 16> content{};
  CHECK(::read(reader, content.data(), content.size()) == 4);
  CHECK(std::string(content.data()) == "text");
  ::close(reader);
}

TEST_CASE("a folder without the right to write is named") {
  if (::geteuid() == 0) RACKRAIL_SKIP("root may write anywhere");
  const test::TemporaryDirectory folder;
  ::chmod(folder.path().c_str(), 0500);
  CHECK_THROWS_WITH(write_file_atomically(folder.path() / "file", "x"),
                    Catch::Contains("Permission denied"));
}

}  // namespace rackrail::file_test
