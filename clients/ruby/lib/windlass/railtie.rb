module Windlass
  # Keeps Windlass' tables out of db/schema.rb, which cannot say all of them. Its columns of Solid Queue's tables are there.
  class Railtie < Rails::Railtie
    initializer "windlass.schema" do
      ActiveSupport.on_load(:active_record) { ActiveRecord::SchemaDumper.ignore_tables |= [/\Awindlass_/] }
    end
  end
end
