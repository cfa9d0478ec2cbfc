#include "explore/sweep.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <mutex>
#include <set>
#include <unordered_map>

#include "base/error.hpp"
#include "explore/parallel.hpp"

namespace rackrail::explore {
namespace {

namespace fs = std::filesystem;

/// Results that another process of the sweep may have: "results.rank3.jsonl" beside
/// "results.jsonl", and that itself.
std::vector<fs::path> files_of(const fs::path& results) {
  std::vector<fs::path> files;
  const std::string prefix = results.stem().string() + ".rank";
  const fs::path folder = results.has_parent_path() ? results.parent_path() : ".";
  std::error_code status;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, status)) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() == results.extension() && stem.starts_with(prefix) &&
        stem.size() > prefix.size() &&
        stem.find_first_not_of("0123456789", prefix.size()) == std::string::npos) {
      files.push_back(results.parent_path() / entry.path().filename());
    }
  }
  std::sort(files.begin(), files.end());
  files.push_back(results);
  return files;
}

/// Appends lines to a file, whole and at once.
class Journal {
 public:
  /// Keeps nothing when the path is empty.
  explicit Journal(const fs::path& path) : path_(path) {
    if (!path_.empty()) {
      out_.open(path_, std::ios::app);
      check();
    }
  }

  void add(const Row& row) {
    if (path_.empty()) {
      return;
    }
    out_ << to_line(row) + "\n" << std::flush;
    check();
  }

 private:
  void check() const {
    if (!out_) {
      throw ConfigError(
          ErrorContext{path_.string(), "", "it cannot be written", "a place for results"});
    }
  }

  fs::path path_;
  std::ofstream out_;
};

/// What is finished, wherever it is. Other processes may be writing their files just now; the cells
/// of this share are not among what they write.
std::unordered_map<std::string, Row> finished_rows(const SweepOptions& options, const fs::path& own,
                                                   const RowFile& before) {
  std::unordered_map<std::string, Row> finished;
  const auto take = [&](const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      if (row.figures || !options.retry_failed) {
        finished.insert_or_assign(row.digest, row);
      }
    }
  };
  for (const fs::path& file : files_of(options.results)) {
    if (file != own) {
      take(read_rows(file).rows);
    }
  }
  take(before.rows);
  return finished;
}

}  // namespace

Row run_cell(const Cell& cell, const SweepOptions& options) {
  Row row{.cell = cell.number,
          .digest = cell.digest(),
          .varied = cell.varied,
          .figures = std::nullopt,
          .error = {},
          .seconds = 0};
  const auto start = std::chrono::steady_clock::now();
  try {
    row.figures = options.evaluate ? options.evaluate(cell) : evaluate(cell, nullptr, options.stop);
  } catch (const std::exception& e) {
    row.error = e.what();
  }
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return row;
}

SweepResult run_sweep(const Cells& cells, const SweepOptions& options) {
  const bool keeps = !options.results.empty();
  const fs::path own = keeps ? options.share.own_file(options.results) : fs::path();
  RowFile before;
  std::unordered_map<std::string, Row> finished;
  if (keeps) {
    if (own.has_parent_path()) {
      std::error_code status;
      fs::create_directories(own.parent_path(), status);
    }
    before = read_rows(own);
    finished = finished_rows(options, own, before);
  }

  SweepResult result;
  std::vector<std::size_t> missing;  // places in result.rows
  std::set<std::string> ours;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!options.share.has(i)) {
      continue;
    }
    const Cell cell = cells.at(i);
    const std::string digest = cell.digest();
    ours.insert(digest);
    const auto it = finished.find(digest);
    if (it == finished.end()) {
      missing.push_back(result.rows.size());
      result.rows.push_back(
          {.cell = i, .digest = digest, .varied = {}, .figures = {}, .error = {}, .seconds = 0});
    } else {
      result.rows.push_back(it->second);
      result.rows.back().cell = i;
      result.rows.back().varied = cell.varied;
    }
  }
  result.ran = missing.size();

  if (before.is_damaged) {
    write_rows(own, before.rows);  // else the next line would be joined to the half one
  }
  std::mutex mutex;
  Journal journal(own);
  std::size_t done = result.rows.size() - missing.size();
  const auto report = [&] {
    if (options.progress) {
      options.progress(done, result.rows.size());
    }
  };
  const auto is_stopped = [&] { return options.stop && options.stop(); };
  std::vector<bool> is_left_out(result.rows.size());
  for (const std::size_t i : missing) {
    is_left_out[i] = true;
  }
  report();
  for_each_index(missing.size(), thread_count(options.threads, missing.size()), [&](std::size_t i) {
    if (is_stopped()) {
      return;
    }
    Row row = run_cell(cells.at(result.rows[missing[i]].cell), options);
    const std::lock_guard lock(mutex);
    if (is_stopped()) {
      return;  // of a search that may have been cut short
    }
    journal.add(row);
    result.rows[missing[i]] = std::move(row);
    is_left_out[missing[i]] = false;
    ++done;
    report();
  });

  std::vector<Row> finished_now;
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    if (!is_left_out[i]) {
      finished_now.push_back(std::move(result.rows[i]));
    }
  }
  result.left_out = result.rows.size() - finished_now.size();
  result.ran -= result.left_out;
  result.rows = std::move(finished_now);
  std::vector<Row> whole;
  std::copy_if(before.rows.begin(), before.rows.end(), std::back_inserter(whole),
               [&](const Row& row) { return !ours.contains(row.digest); });
  result.kept = whole.size();
  whole.insert(whole.end(), result.rows.begin(), result.rows.end());
  if (keeps) {
    write_rows(own, whole);
  }
  result.failed = static_cast<std::size_t>(std::count_if(
      result.rows.begin(), result.rows.end(), [](const Row& row) { return !row.figures; }));
  return result;
}

const Row* best_row(const std::vector<Row>& rows, const Objective& objective) {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (!row.figures) {
      continue;
    }
    const double value = value_of(*row.figures, objective);
    if (best == nullptr) {
      best = &row;
      continue;
    }
    const double leader = value_of(*best->figures, objective);
    if (objective.more_is_better ? value > leader : value < leader) {
      best = &row;
    }
  }
  return best;
}

}  // namespace rackrail::explore
