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

}  // namespace

TEST_CASE("a token comes from the variable, or from a file's first line") {
  {
    const TokenVariable variable(nullptr);
    CHECK(read_job_token("").empty());
  }
  const TokenVariable variable("from-variable");
  CHECK(read_job_token("") == "from-variable");
  const rackrail::test::TemporaryDirectory folder;
  write_file_atomically(folder.path() / "token", "from-file\nsecond line\n");
  CHECK(read_job_token(folder.path() / "token") == "from-file");
}

TEST_CASE("a token that cannot be one is refused without being shown") {
  const rackrail::test::TemporaryDirectory folder;
  for (const std::string& content : {std::string("\n"), std::string("two words\n"),
                                     std::string("tab\there"), std::string(5000, 'x')}) {
    write_file_atomically(folder.path() / "token", content);
    try {
      read_job_token(folder.path() / "token");
      FAIL("accepted");
    } catch (const ConfigError& error) {
      CHECK_THAT(error.what(), Catch::Contains("expected 1 to 4096 printable characters"));
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
