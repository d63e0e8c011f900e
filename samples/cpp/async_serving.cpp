// Clients are served while a thread of the pipeline's own makes the steps: by callbacks, and one
// that waits: async_serving MODEL_FOLDER
#include <future>
#include <iostream>

#include "pagewheel/continuous_batching_pipeline.hpp"

namespace {

/// A request's text, collected by callbacks, which come on the thread that steps.
class Client : public std::enable_shared_from_this<Client> {
public:
    explicit Client(std::shared_ptr<pagewheel::GenerationHandle> handle)
        : m_handle(std::move(handle)) {}

    std::future<std::string> text() { return m_over.get_future(); }

    /// Asks to be called when there is something to read.
    void listen() {
        m_handle->notify_once([self = shared_from_this()] { self->receive(); });
    }

private:
    void receive() {
        const bool over = m_handle->get_status() != pagewheel::GenerationStatus::RUNNING;
        for (const auto& [sequence, output] : m_handle->read_available(/*with_text=*/true))
            m_text += output.text;  // here a server would send it
        if (over)
            m_over.set_value(m_text);
        else
            listen();
    }

    std::shared_ptr<pagewheel::GenerationHandle> m_handle;
    std::string m_text;
    std::promise<std::string> m_over;
};

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 2) throw std::invalid_argument("usage: async_serving MODEL_FOLDER");
    pagewheel::SchedulerConfig scheduler;
    scheduler.cache_size = 1;
    pagewheel::ContinuousBatchingPipeline pipeline(argv[1], scheduler, "CPU");
    pipeline.start();

    pagewheel::GenerationConfig config = pipeline.get_config();
    config.max_new_tokens = 24;
    config.ignore_eos = true;
    const char* prompts[] = {"The capital of France is", "1, 2, 3, 4,", "Once upon a time"};
    std::vector<std::future<std::string>> texts;
    for (uint64_t id = 0; id < 3; ++id) {
        const auto client = std::make_shared<Client>(pipeline.add_request(id, prompts[id], config));
        texts.push_back(client->text());
        client->listen();
    }

    const auto handle = pipeline.add_request(3, "Water boils at", config);
    std::string waited;
    while (handle->get_status() == pagewheel::GenerationStatus::RUNNING) {
        handle->wait(std::chrono::seconds(10));
        for (const auto& [sequence, output] : handle->read_available(/*with_text=*/true))
            waited += output.text;
    }
    std::cout << "waited: Water boils at" << waited << '\n';
    for (size_t i = 0; i < texts.size(); ++i)
        std::cout << "called back: " << prompts[i] << texts[i].get() << '\n';
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
