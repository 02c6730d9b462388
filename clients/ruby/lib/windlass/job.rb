module Windlass
  # The base of Active Job classes whose jobs are performed in Rust. The class declares what the type in Rust does:
  #
  #   class SendWelcome < Windlass::Job
  #     rust_class "send_welcome"                     # default: the name of the class
  #     queue_as :rust_mail                           # which no worker of Ruby serves
  #     limit_runs to: 2, key: ->(email:, **) { email }
  #     unique_id ->(email:, **) { "welcome/#{email}" }, on_conflict: :replace
  #     at_most_once
  #   end
  #
  #   SendWelcome.set(wait: 5.minutes).perform_later(email: "ada@example.com")
  class Job < ActiveJob::Base
    self.queue_adapter = Adapter.new
    self.enqueue_after_transaction_commit = false if respond_to?(:enqueue_after_transaction_commit=)

    class_attribute :windlass_options, instance_accessor: false, default: {}.freeze

    class << self
      # The `NAME` of the type in Rust.
      def rust_class(name)
        windlass(class: name.to_s)
      end

      # At most `to` jobs of a key run at once. As `limits_concurrency` of Solid Queue, but held by Windlass.
      def limit_runs(to:, key: ->(**) { "all" }, group: nil, on_conflict: nil)
        windlass(concurrency_key: key, concurrency_limit: to, concurrency_group: group, concurrency_on_conflict: on_conflict)
      end

      # At most one job of an id waits or runs. `on_conflict` is :existing, :refuse, :replace or :run_again.
      def unique_id(id, on_conflict: nil)
        windlass(unique_id: id, on_conflict: on_conflict)
      end

      # A run whose process dies fails the job, instead of running it again.
      def at_most_once
        windlass(at_most_once: true)
      end

      private

      def windlass(**options)
        self.windlass_options = windlass_options.merge(options).freeze
      end
    end

    # What is inserted. Raises EnqueueError for arguments that Rust cannot read.
    def windlass_row
      keywords = arguments.last
      unless arguments.empty? || (arguments.size == 1 && keywords.is_a?(Hash) && Hash.ruby2_keywords_hash?(keywords))
        raise EnqueueError, "cannot enqueue `#{rust_name}`: a job of Rust takes keywords only, as `perform_later(user: 7)`"
      end

      keywords ||= {}
      options = self.class.windlass_options.transform_values { |option| option.is_a?(Proc) ? option.call(**keywords) : option }
      options = options.transform_values { |option| option.is_a?(Symbol) ? option.to_s : option }
      { **options, class: rust_name, arguments: Arguments.to_json(keywords), queue: queue_name, priority: priority }
    end

    def perform(**)
      raise NotImplementedError, "#{self.class} is performed in Rust: start a worker of Windlass for its queue, and none of Ruby"
    end

    private

    def rust_name
      self.class.windlass_options[:class] || self.class.name
    end
  end
end
