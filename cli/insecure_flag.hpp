#pragma once

namespace CLI {
class App;
}

namespace rackrail::cli {

/// Adds --insecure, which is RACKRAIL_INSECURE=1 for this process and those that it starts.
void add_insecure_flag(CLI::App& command);

}  // namespace rackrail::cli
