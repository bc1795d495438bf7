// Rows of label and value; everything through textContent, because names come from users' traces.
export default function ({ data, parentElement, setTriggerValue }) {
  const list = parentElement.querySelector(".facts");
  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    element.className = name;
    element.textContent = text;
    return element;
  };
  const rows = data.rows.map(({ label, value, hint, go }) => {
    const row = make("div", "row", "");
    const body = make("dd", "", "");
    if (go) {
      const button = make("button", "", value);
      button.type = "button";
      button.onclick = () => setTriggerValue("go", go);
      body.append(button);
    } else body.textContent = value;
    if (hint) row.title = hint;
    row.append(make("dt", "", label), body);
    return row;
  });
  const title = data.title ? [make("div", "title", data.title)] : [];
  const note = data.note ? [make("div", "note", data.note)] : [];
  list.replaceChildren(...title, ...rows, ...note);
}
