// The lines of a posted log, freed of what launchers and terminals add, and NCCL's own apart from
// those of the program.
//
// NCCL writes from many threads between the pieces of a row that a benchmark prints ("8 2 float sum
// -1", then a time, then the next), so that a row may be spread over many lines and end in the name
// of a host. `separate` puts such rows together again.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rackrail::sim::measured {

struct ProgramLine {
  std::size_t number = 0;  ///< in the file, from 1
  std::string text;        ///< without tags; never blank
};

/// "host:pid:tid [device] NCCL INFO text".
struct NcclLine {
  std::size_t number = 0;
  std::string host;     ///< empty where the log does not say
  std::string process;  ///< "host:pid:tid": one communicator at a time is made by it
  std::string text;
  bool is_warning = false;
};

struct SeparatedLog {
  std::vector<ProgramLine> program;
  std::vector<NcclLine> nccl;
};

SeparatedLog separate(std::string_view content);

/// Without what srun ("0: "), mpirun ("[1,0]<stdout>:"), kubectl ("[pod/a/b] "), Ray ("(x pid=1)
/// "), docker ("a | "), time stamps and quotation ("> ") put before a line.
std::string_view without_tags(std::string_view text);

/// Divided at blanks; refers to the text.
std::vector<std::string_view> words_of(std::string_view text);

/// "float", "bfloat16", "uint8", "fp8_e4m3" …: the types of elements in tables of nccl-tests.
bool is_element_type(std::string_view word);

/// A whole number of digits only; a number, with sign, point and exponent.
bool is_digits(std::string_view word);
bool is_number(std::string_view word);
/// A whole number from 0 to `most`, blanks around it allowed; none for anything else.
std::optional<std::size_t> whole_number(std::string_view word, std::size_t most);
std::optional<double> real_number(std::string_view word);

}  // namespace rackrail::sim::measured
