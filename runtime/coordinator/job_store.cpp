#include "runtime/coordinator/job_store.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "runtime/unique_handle.hpp"

namespace rackrail::runtime {
namespace {

struct DatabaseTraits {
  using Handle = sqlite3*;
  static void release(Handle handle) noexcept { sqlite3_close_v2(handle); }
};
struct StatementTraits {
  using Handle = sqlite3_stmt*;
  static void release(Handle handle) noexcept { sqlite3_finalize(handle); }
};
using Database = UniqueHandle<DatabaseTraits>;

constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY CHECK (id = 1), identity TEXT NOT NULL,"
    " address TEXT NOT NULL, token TEXT NOT NULL, options TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS epoch (number INTEGER PRIMARY KEY, seats TEXT NOT NULL,"
    " since TEXT NOT NULL, step INTEGER NOT NULL, plan BLOB NOT NULL, digest TEXT NOT NULL);";

std::string to_text(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (const std::uint32_t number : numbers) {
    text += std::to_string(number) + " ";
  }
  return text;
}

std::vector<std::uint32_t> numbers_of(std::string_view text) {
  std::vector<std::uint32_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::uint32_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || next == end) {
      throw RuntimeFailure("the job's database holds no list of numbers: '" + std::string(text) +
                           "'");
    }
    numbers.push_back(number);
    at = next + 1;
  }
  return numbers;
}

std::vector<std::uint32_t> numbers_of(const std::vector<Rank>& seats) {
  std::vector<std::uint32_t> numbers;
  std::ranges::transform(seats, std::back_inserter(numbers), &Rank::value);
  return numbers;
}

std::vector<Rank> seats_of(std::string_view text) {
  std::vector<Rank> seats;
  for (const std::uint32_t number : numbers_of(text)) {
    seats.emplace_back(number);
  }
  return seats;
}

}  // namespace

struct JobStore::Impl {
  std::filesystem::path file;
  Database database;

  [[noreturn]] void fail(const char* doing) const {
    throw RuntimeFailure(file.string() + ": " + doing + ": " + sqlite3_errmsg(database.get()));
  }

  void execute(const char* commands) const {
    if (sqlite3_exec(database.get(), commands, nullptr, nullptr, nullptr) != SQLITE_OK) {
      fail("writing");
    }
  }
};

namespace {

/// One prepared command; columns and parameters count from 0 and 1, as SQLite has it.
class Statement {
 public:
  Statement(sqlite3* database, const std::filesystem::path& file, const char* text)
      : database_(database), file_(file) {
    sqlite3_stmt* statement = nullptr;
    check(sqlite3_prepare_v2(database, text, -1, &statement, nullptr) == SQLITE_OK);
    statement_ = UniqueHandle<StatementTraits>(statement);
  }

  void bind(int parameter, std::string_view value) {
    check(sqlite3_bind_blob64(statement_.get(), parameter, value.data(), value.size(),
                              SQLITE_TRANSIENT) == SQLITE_OK);
  }
  void bind(int parameter, std::int64_t value) {
    check(sqlite3_bind_int64(statement_.get(), parameter, value) == SQLITE_OK);
  }

  /// Whether there is a row.
  bool step() {
    const int status = sqlite3_step(statement_.get());
    check(status == SQLITE_ROW || status == SQLITE_DONE);
    return status == SQLITE_ROW;
  }

  std::string text(int column) {
    const void* data = sqlite3_column_blob(statement_.get(), column);
    const int size = sqlite3_column_bytes(statement_.get(), column);
    return data == nullptr
               ? std::string()
               : std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
  }
  std::uint32_t number(int column) {
    return static_cast<std::uint32_t>(sqlite3_column_int64(statement_.get(), column));
  }

 private:
  void check(bool ok) const {
    if (!ok) {
      throw RuntimeFailure(file_.string() + ": " + sqlite3_errmsg(database_));
    }
  }

  sqlite3* database_;
  const std::filesystem::path& file_;
  UniqueHandle<StatementTraits> statement_;
};

}  // namespace

JobStore::JobStore(const std::filesystem::path& folder) : impl_(std::make_unique<Impl>()) {
  impl_->file = folder / "job.sqlite3";
  const auto refuse = [&](const std::string& found) {
    throw ConfigError(ErrorContext{.file = impl_->file.string(),
                                   .where = {},
                                   .found = found,
                                   .expected = "a place for the state of one job"});
  };
  std::error_code status;
  std::filesystem::create_directories(folder, status);
  if (status) {
    refuse(status.message());
  }
  // Made here, because SQLite gives a new file the rights of any other.
  const int made = open(impl_->file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (made < 0) {
    refuse(std::system_category().message(errno));
  }
  close(made);
  sqlite3* database = nullptr;
  const int opened = sqlite3_open_v2(impl_->file.c_str(), &database,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, nullptr);
  impl_->database = Database(database);
  // In this order: the lock is taken with the first access, and kept.
  for (const char* const command :
       {"PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL",
        "BEGIN EXCLUSIVE", kSchema, "COMMIT"}) {
    if (opened != SQLITE_OK ||
        sqlite3_exec(database, command, nullptr, nullptr, nullptr) != SQLITE_OK) {
      refuse(sqlite3_errcode(database) == SQLITE_BUSY ? "a job that another process runs"
                                                      : sqlite3_errmsg(database));
    }
  }
}

JobStore::~JobStore() = default;

std::optional<UnfinishedJob> JobStore::unfinished() const {
  Statement query(
      impl_->database.get(), impl_->file,
      "SELECT identity, address, token, options, number, seats, since, step, plan, digest"
      " FROM job, epoch ORDER BY number DESC LIMIT 1");
  if (!query.step()) {
    return std::nullopt;
  }
  return UnfinishedJob{
      .job = {.identity = query.text(0),
              .address = parse_host_port(query.text(1), "address", impl_->file.string()),
              .token = query.text(2),
              .job_options = query.text(3)},
      .epoch = {.epoch = query.number(4),
                .seats = seats_of(query.text(5)),
                .since = numbers_of(query.text(6)),
                .step = query.number(7),
                .plan = {.plan = query.text(8), .digest = query.text(9)},
                .newcomers = {}}};
}

void JobStore::begin(const JobRecord& job) {
  end();
  Statement insert(impl_->database.get(), impl_->file,
                   "INSERT INTO job VALUES (1, ?1, ?2, ?3, ?4)");
  insert.bind(1, job.identity);
  insert.bind(2, to_string(job.address));
  insert.bind(3, job.token);
  insert.bind(4, job.job_options);
  insert.step();
}

void JobStore::add(const EpochRecord& epoch) {
  Statement insert(impl_->database.get(), impl_->file,
                   "INSERT OR REPLACE INTO epoch VALUES (?1, ?2, ?3, ?4, ?5, ?6)");
  insert.bind(1, std::int64_t{epoch.epoch});
  insert.bind(2, to_text(numbers_of(epoch.seats)));
  insert.bind(3, to_text(epoch.since));
  insert.bind(4, std::int64_t{epoch.step});
  insert.bind(5, epoch.plan.plan);
  insert.bind(6, epoch.plan.digest);
  insert.step();
}

void JobStore::end() { impl_->execute("BEGIN; DELETE FROM job; DELETE FROM epoch; COMMIT"); }

}  // namespace rackrail::runtime
