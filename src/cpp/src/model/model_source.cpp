#include "model/model_source.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>

#include "base/check.hpp"
#include "base/child_process.hpp"
#include "base/log.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

namespace fs = std::filesystem;

// Beyond any conversion, and still an end.
constexpr std::chrono::hours max_time{24};
// What it has to remove what it has begun.
constexpr std::chrono::seconds grace{30};
constexpr size_t max_text = 1 << 16;

bool is_program(const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

/// The command of the Python environment that this library is installed in, if it is.
std::optional<fs::path> command_of_package() {
    Dl_info library{};
    if (dladdr(reinterpret_cast<void*>(&is_program), &library) == 0) return std::nullopt;
    // PREFIX/lib/python3.x/site-packages/pagewheel/lib/libpagewheel.so
    const fs::path package = fs::absolute(library.dli_fname).parent_path().parent_path();
    const fs::path packages = package.parent_path();
    if (package.filename() != "pagewheel" || packages.filename() != "site-packages")
        return std::nullopt;
    const fs::path command =
        packages.parent_path().parent_path().parent_path() / "bin" / "pagewheel";
    return is_program(command) ? std::optional(command) : std::nullopt;
}

/// Relative folders of PATH are left out: they would make the command a matter of where one is.
std::optional<fs::path> command_in_path() {
    const char* variable = secure_getenv("PATH");
    std::string folders = variable ? variable : "";
    for (size_t begin = 0; begin < folders.size();) {
        const size_t end = std::min(folders.find(':', begin), folders.size());
        const fs::path folder = folders.substr(begin, end - begin);
        if (folder.is_absolute() && is_program(folder / "pagewheel")) return folder / "pagewheel";
        begin = end + 1;
    }
    return std::nullopt;
}

/// The command line's program, which converts: $PAGEWHEEL_COMMAND, else that of the Python package
/// that this library belongs to, else `pagewheel` in one of PATH's absolute folders. Throws Error
/// that says what to install.
fs::path find_command() {
    if (const char* own = secure_getenv("PAGEWHEEL_COMMAND")) {
        if (!is_program(own))
            throw Error(concat("PAGEWHEEL_COMMAND is ", own,
                               "; it must be the path of the program `pagewheel`"),
                        ErrorCode::dependency_missing);
        return fs::absolute(own);
    }
    if (const auto command = command_of_package()) return *command;
    if (const auto command = command_in_path()) return *command;
    throw Error(
        "a .gguf file or a Hugging Face folder is converted by the command `pagewheel` of the "
        "Python package, which is not in PATH. Install it (`pip install pagewheel`, with Python "
        "3.10 or newer), name it in PAGEWHEEL_COMMAND, or give a folder that `pagewheel convert` "
        "has made elsewhere",
        ErrorCode::dependency_missing);
}

bool is_huggingface_folder(const fs::path& path) {
    if (!fs::is_regular_file(path / "config.json")) return false;
    for (const fs::directory_entry& entry : fs::directory_iterator(path))
        if (entry.path().filename().string().find(".safetensors") != std::string::npos) return true;
    return false;
}

/// The line that the command ends with, without what every error begins with.
std::string last_words(const std::string& errors) {
    std::string text = errors;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (const size_t line = text.rfind('\n'); line != std::string::npos) text.erase(0, line + 1);
    const std::string mark = "error: ";
    return text.compare(0, mark.size(), mark) == 0 ? text.substr(mark.size()) : text;
}

[[noreturn]] void report(const fs::path& source, const fs::path& command,
                         const ProcessResult& result) {
    using End = ProcessResult::End;
    const std::string words = last_words(result.errors);
    if (result.end == End::EXITED && result.code == 1 && !words.empty())
        refuse_argument(ErrorCode::conversion_failed, source, " cannot be converted: ", words);
    std::string how = concat("ended with code ", result.code);
    if (result.end == End::SIGNALLED) how = concat("was ended by signal ", result.code);
    if (result.end == End::TIMED_OUT) how = concat("took longer than ", max_time.count(), " hours");
    if (result.end == End::TOO_MUCH_OUTPUT) how = "printed too much";
    throw Error(concat(source, " was not converted: the command ", command, " ", how,
                       words.empty() ? "" : ": ", words),
                ErrorCode::conversion_failed);
}

ProcessResult run(const fs::path& command, const fs::path& source) {
    ProcessRequest request;
    request.command = {command.string(), "convert", "--quiet", "--", source.string()};
    request.time = max_time;
    request.grace = grace;
    request.most_output = max_text;
    request.kept_errors = max_text;
    try {
        return run_process(request);
    } catch (const std::system_error& error) {
        throw Error(concat(source, " was not converted: ", error.what()),
                    ErrorCode::conversion_failed);
    }
}

fs::path convert(const fs::path& source) {
    const fs::path command = find_command();
    log(LogLevel::INFO, concat("converting ", source, " with ", command));
    const ProcessResult result = run(command, source);
    const bool went_well =
        result.end == ProcessResult::End::UNKNOWN ||
        (result.end == ProcessResult::End::EXITED && result.code == EXIT_SUCCESS);
    std::string folder = result.output;
    if (!folder.empty() && folder.back() == '\n') folder.pop_back();
    if (!went_well || !fs::is_regular_file(fs::path(folder) / "openvino_model.xml"))
        report(source, command, result);
    return folder;
}

void copy_new_files(const fs::path& from, const fs::path& to) {
    for (const fs::directory_entry& file : fs::directory_iterator(from))
        fs::copy_file(file.path(), to / file.path().filename(), fs::copy_options::skip_existing);
}

}  // namespace

fs::path resolve_model(const fs::path& path, const char* file, bool save_beside) {
    if (!fs::exists(path)) throw ModelNotFound(concat("model folder ", path, " does not exist"));
    if (fs::is_regular_file(path)) {
        const fs::path folder = convert(fs::absolute(path));
        if (save_beside) copy_new_files(folder, fs::absolute(path).parent_path());
        return folder;
    }
    if (!fs::is_directory(path))
        refuse_argument(ParameterName("models_path", ""), path,
                        " is a device or a pipe; allowed are files and folders");
    if (fs::is_regular_file(path / file)) return path;
    if (is_huggingface_folder(path)) return convert(fs::absolute(path));
    throw ModelNotFound(concat(path, " holds no ", file,
                               " and no config.json with safetensors; give a .gguf file, a Hugging "
                               "Face folder or an OpenVINO model folder"));
}

}  // namespace pagewheel
