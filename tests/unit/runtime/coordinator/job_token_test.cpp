#include "runtime/coordinator/job_token.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "tests/support/paths.hpp"

namespace rackrail::runtime::job_token_test {
namespace {

/// Sets the variable, and puts back what was there.
class TokenVariable {
 public:
  explicit TokenVariable(const char* value) {
    if (const char* old = std::getenv(kJobTokenVariable)) {
      old_ = old;
    }
    set(value);
  }
  ~TokenVariable() { set(old_ ? old_->c_str() : nullptr); }
  TokenVariable(const TokenVariable&) = delete;
  TokenVariable& operator=(const TokenVariable&) = delete;

 private:
  static void set(const char* value) {
    if (value != nullptr) {
      setenv(kJobTokenVariable, value, 1);
    } else {
      unsetenv(kJobTokenVariable);
    }
  }
  std::optional<std::string> old_;
};

void write_secret(const std::filesystem::path& file, const std::string& content) {
  write_file_atomically(file, content);
  using std::filesystem::perms;
  std::filesystem::permissions(file, perms::owner_read | perms::owner_write);
}

}  // namespace

TEST_CASE("a token file that others may read is refused") {
  const rackrail::test::TemporaryDirectory folder;
  const std::filesystem::path file = folder.path() / "token";
  write_secret(file, make_job_token() + "\n");
  CHECK(read_job_token(file).size() == 64);
  using std::filesystem::perms;
  for (const perms others : {perms::group_read, perms::others_read}) {
    std::filesystem::permissions(file, perms::owner_read | others);
    CHECK_THROWS_WITH(read_job_token(file),
                      Catch::Contains("a token that others may read") && Catch::Contains("600"));
  }
}

TEST_CASE("a token of so few characters that it can be guessed is refused") {
  const TokenVariable one("x");
  CHECK_THROWS_WITH(read_job_token(""), Catch::Contains("1 characters"));
  const TokenVariable fifteen("123456789abcdef");
  CHECK_THROWS_WITH(read_job_token(""), Catch::Contains("15 characters"));
}

TEST_CASE("a token comes from the variable, or from a file's first line") {
  {
    const TokenVariable variable(nullptr);
    CHECK(read_job_token("").empty());
  }
  const TokenVariable variable("from-the-variable");
  CHECK(read_job_token("") == "from-the-variable");
  const rackrail::test::TemporaryDirectory folder;
  write_secret(folder.path() / "token", "from-the-file-of-it\nsecond line\n");
  CHECK(read_job_token(folder.path() / "token") == "from-the-file-of-it");
}

TEST_CASE("a token that cannot be one is refused without being shown") {
  const rackrail::test::TemporaryDirectory folder;
  for (const std::string& content : {std::string("\n"), std::string("two words\n"),
                                     std::string("tab\there"), std::string(5000, 'x')}) {
    write_secret(folder.path() / "token", content);
    try {
      read_job_token(folder.path() / "token");
      FAIL("accepted");
    } catch (const ConfigError& error) {
      CHECK_THAT(error.what(), Catch::Contains("expected 16 to 4096 printable characters"));
      CHECK_THAT(error.what(), !Catch::Contains("words") && !Catch::Contains("xxxx"));
    }
  }
  CHECK_THROWS_AS(read_job_token(folder.path() / "absent"), ConfigError);
  const TokenVariable variable("");
  CHECK_THROWS_AS(read_job_token(""), ConfigError);
}

TEST_CASE("made tokens are long and never the same") {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) {
    tokens.insert(make_job_token());
  }
  CHECK(tokens.size() == 100);
  CHECK(tokens.begin()->size() == 64);
}

TEST_CASE("tokens are equal only when all of both is") {
  CHECK(same_token("abc", "abc"));
  CHECK(same_token("", ""));
  CHECK_FALSE(same_token("abc", "abd"));
  CHECK_FALSE(same_token("abc", "abcd"));
  CHECK_FALSE(same_token("abc", ""));
}

}  // namespace rackrail::runtime::job_token_test
